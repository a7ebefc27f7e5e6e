// How the page is built: two documents, hashed files beside them, nothing inlined, so that a strict CSP holds.
import { defineConfig, type Plugin } from "vite";

/**
 * Two parts of Yasgui that do not belong here: a list of prefixes that strangers wrote, none of them of the graph that
 * is served, and an `eval` in a stand-in for JSON of old browsers, which the CSP would refuse anyway.
 */
function trimmedYasgui(): Plugin {
  const cuts: [RegExp, string][] = [
    [/\bprefixes_default = \{[^{}]*\}/, "prefixes_default = {}"],
    [/\beval\("\(" \+ text \+ "\)"\)/, "JSON.parse(text)"],
  ];
  return {
    name: "trimmed-yasgui",
    transform(code, id) {
      if (!id.endsWith("/yasgui.esm.js")) return null;
      let trimmed = code;
      for (const [part, instead] of cuts) {
        if (!part.test(trimmed)) this.error(`Yasgui no longer holds ${part}; look at what became of it`);
        trimmed = trimmed.replace(part, instead);
      }
      return { code: trimmed, map: null };
    },
  };
}

export default defineConfig({
  base: "./",
  publicDir: false,
  plugins: [trimmedYasgui()],
  build: {
    outDir: "../src/biqe/serve/page",
    emptyOutDir: true,
    target: "es2022",
    // Data URLs and inline scripts would each need an exception in the CSP.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // Whose work is in the built files, and under which terms.
    license: { fileName: "licences.md" },
    // Yasgui comes as one piece, on a document of its own.
    chunkSizeWarningLimit: 1200,
    rollupOptions: {
      input: { index: "index.html", yasgui: "yasgui.html" },
    },
  },
  // `npm run dev` beside `biqe serve` on its usual port.
  server: { proxy: { "/api": "http://127.0.0.1:7878", "/sparql": "http://127.0.0.1:7878" } },
});
