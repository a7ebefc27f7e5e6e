// Yasgui on this server's endpoint: the editor that many know, for all of SPARQL. It asks nobody else: the services
// that it would look prefixes and classes up at are left out, and so is its choice of other endpoints.
import Yasgui from "@zazuko/yasgui";
import "@zazuko/yasgui/build/yasgui.min.css";
import { byId } from "./dom";

const QUERY = `SELECT * WHERE {
  ?subject ?relation ?object
} LIMIT 20`;

const token = sessionStorage.getItem("biqe-token");

Yasgui.Yasqe.defaults.value = QUERY;
new Yasgui(byId("yasgui"), {
  persistenceId: null,
  populateFromUrl: true,
  copyEndpointOnNewTab: true,
  requestConfig: {
    endpoint: new URL("./sparql", location.href).href,
    method: "POST",
    headers: () => (token ? { Authorization: `Bearer ${token}` } : ({} as Record<string, string>)),
  },
  endpointCatalogueOptions: { getData: () => [], keys: [] },
  yasqe: { autocompleters: ["variables"] },
});
