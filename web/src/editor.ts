// The SPARQL editor: CodeMirror in a shadow root, where its style sheets are adopted rather than written into the
// document, so that the page's CSP needs no exception for inline styles.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, setDiagnostics } from "@codemirror/lint";
import { EditorState, Prec, type Text } from "@codemirror/state";
import { drawSelection, EditorView, keymap, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { sparql } from "codemirror-lang-sparql";
import type { Problem } from "./api";
import { completions } from "./completion";
import { el } from "./dom";

export interface Editor {
  readonly text: string;
  write(text: string): void;
  /** Underline those that have a place; an empty list takes all underlines away. */
  mark(problems: Problem[]): void;
  goTo(line: number, column: number): void;
  focus(): void;
}

interface Placed extends Problem {
  line: number;
  column: number;
}

// Custom properties pass into a shadow root, so light and dark come from the page's own style sheet.
const THEME = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "transparent", fontSize: "var(--code-size)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.65", minHeight: "var(--editor-height)", overflow: "auto" },
  ".cm-content": { padding: "14px 0", caretColor: "var(--ink)" },
  ".cm-line": { padding: "0 16px" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-placeholder": { color: "var(--soft)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  "&.cm-focused .cm-matchingBracket, .cm-matchingBracket": { backgroundColor: "var(--known-tint)", outline: "1px solid var(--line-strong)" },
  "&.cm-focused .cm-nonmatchingBracket, .cm-nonmatchingBracket": { backgroundColor: "transparent" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--line-strong)", borderRadius: "8px", boxShadow: "var(--shadow)", overflow: "hidden" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "0.875rem", maxHeight: "16em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "4px 12px 4px 8px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--known-tint)", color: "var(--ink)" },
  ".cm-completionDetail": { fontFamily: "var(--sans)", fontStyle: "normal", color: "var(--soft)", marginLeft: "1em" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "600" },
  ".cm-completionIcon": { width: "1.2em", color: "var(--soft)", opacity: "1" },
  ".cm-completionIcon-entity::after": { content: "'▪'" },
  ".cm-completionIcon-relation::after": { content: "'→'" },
  ".cm-completionIcon-prefix::after": { content: "'∷'" },
  ".cm-completionIcon-keyword::after": { content: "'·'" },
  ".cm-completionIcon-variable::after": { content: "'?'" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--error)", textUnderlineOffset: "4px", textDecorationSkipInk: "none" },
  ".cm-lintPoint-error::after": { borderBottomColor: "var(--error)" },
  ".cm-diagnostic": { fontFamily: "var(--sans)", fontSize: "0.875rem", padding: "8px 12px", maxWidth: "36em", whiteSpace: "pre-wrap" },
  ".cm-diagnostic-error": { borderLeft: "3px solid var(--error)" },
});

const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.definitionKeyword], color: "var(--soft)", fontWeight: "600" },
  { tag: [tags.variableName, tags.special(tags.variableName)], color: "var(--known)", fontWeight: "600" },
  { tag: [tags.namespace, tags.propertyName, tags.labelName, tags.atom], color: "var(--ink)" },
  { tag: [tags.string, tags.number, tags.bool], color: "var(--predicted)" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
]);

/**
 * Typing over a selection, done here: Chromium would keep the look of what it replaces by writing style attributes,
 * which the CSP refuses.
 */
const TYPING_OVER = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { main } = view.state.selection;
    const { data } = event;
    if (event.inputType !== "insertText" || data === null || main.empty || view.composing) return false;
    event.preventDefault();
    const insert = () => view.state.update(view.state.replaceSelection(data), { userEvent: "input.type", scrollIntoView: true });
    const handlers = view.state.facet(EditorView.inputHandler);
    if (!handlers.some((handle) => handle(view, main.from, main.to, data, insert))) view.dispatch(insert());
    return true;
  },
});

export function createEditor(host: HTMLElement, on: { change(): void; ask(): void }): Editor {
  const root = host.attachShadow({ mode: "open" });
  const parent = el("div");
  root.append(parent);
  const view = new EditorView({
    parent,
    root,
    state: EditorState.create({
      extensions: [
        // Before the default keys, of which Ctrl-Enter would insert a line.
        Prec.highest(keymap.of([{ key: "Mod-Enter", run: () => (on.ask(), true) }])),
        history(),
        drawSelection(),
        TYPING_OVER,
        bracketMatching(),
        closeBrackets(),
        sparql(),
        syntaxHighlighting(COLOURS),
        autocompletion({ override: [completions], icons: true, activateOnTypingDelay: 80 }),
        placeholder("SELECT ?x WHERE { … }"),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": "SPARQL query", "aria-describedby": "problem", spellcheck: "false" }),
        EditorView.updateListener.of((update) => update.docChanged && on.change()),
        THEME,
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap]),
      ],
    }),
  });
  return {
    get text() {
      return view.state.doc.toString();
    },
    write(text) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: 0 } });
    },
    mark(problems) {
      const placed = problems.flatMap((problem) => (problem.line !== null && problem.column !== null ? [{ ...problem, line: problem.line, column: problem.column }] : []));
      view.dispatch(setDiagnostics(view.state, placed.map((problem) => diagnostic(view.state.doc, problem))));
    },
    goTo(line, column) {
      view.dispatch({ selection: { anchor: position(view.state.doc, line, column) }, scrollIntoView: true });
      view.focus();
    },
    focus: () => view.focus(),
  };
}

function position(doc: Text, line: number, column: number): number {
  const row = doc.line(Math.min(Math.max(1, line), doc.lines));
  return Math.min(row.from + Math.max(0, column - 1), row.to);
}

/** A problem on the word at its place. */
function diagnostic(doc: Text, problem: Placed): Diagnostic {
  const message = problem.hint ? `${problem.message}\n${problem.hint}` : problem.message;
  let from = position(doc, problem.line, problem.column);
  const rest = doc.sliceString(from, doc.lineAt(from).to);
  const to = from + (/^(?:[?$:\p{L}\p{N}_<][^\s{}(),;]*|\S)/u.exec(rest)?.[0].length ?? 0);
  // At the end of a line there is nothing to underline but what stands before it.
  if (to === from && from > 0) from -= 1;
  return { from, to, severity: "error", message };
}
