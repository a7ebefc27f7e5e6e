// The dialog at the side of the page: why a row is an answer, and cards of entities. What leads further stacks up.
import { Refusal } from "./api";
import { type Child, el, refill } from "./dom";
import { refused, waiting } from "./notices";

/** What the dialog shows. */
export interface Panel {
  kicker: string;
  title: string;
  /** What is waited for. */
  waiting: string;
  content(body: HTMLElement, signal: AbortSignal): Promise<Child[]>;
  /** The panel before or after this one. */
  near?(by: -1 | 1): Panel | null;
  /** Called when the dialog is closed that was opened with this panel. */
  left?(): void;
}

export interface Drawer {
  /** Show a panel; what is open already can be gone back to. */
  open(panel: Panel): void;
  close(): void;
}

/** Escape closes it, the arrows go to the panels before and after. */
export function createDrawer(dialog: HTMLDialogElement): Drawer {
  const stack: Panel[] = [];
  let under = new AbortController();

  dialog.addEventListener("close", () => {
    under.abort();
    const first = stack[0];
    stack.length = 0;
    first?.left?.();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });

  function tool(does: string, label: string, sign: string, go: (() => void) | null): HTMLElement {
    return el("button", { type: "button", class: "quiet icon", "data-does": does, "aria-label": label, disabled: go === null, click: go ?? (() => {}) }, sign);
  }

  function step(panel: Panel, by: -1 | 1): (() => void) | null {
    const next = panel.near?.(by);
    return next ? () => { stack.pop(); stack.push(next); void show(); } : null;
  }

  async function show(): Promise<void> {
    const panel = stack.at(-1);
    if (!panel) return;
    under.abort();
    under = new AbortController();
    const { signal } = under;
    const held = dialog.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset.does : undefined;
    const body = el("div", { class: "why-body", "aria-busy": "true" }, waiting(panel.waiting));
    refill(dialog,
      el("div", { class: "why-frame" },
        el("header", { class: "why-head" },
          el("div", { class: "why-title" }, el("p", { class: "kicker" }, panel.kicker), el("h2", { id: "why-title" }, panel.title)),
          el("div", { class: "why-tools" },
            stack.length > 1 && tool("back", "Back", "←", () => { stack.pop(); void show(); }),
            panel.near && tool("before", "Row before", "↑", step(panel, -1)),
            panel.near && tool("after", "Row after", "↓", step(panel, 1)),
            tool("close", "Close", "✕", () => dialog.close()),
          ),
        ),
        body,
      ),
    );
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    (dialog.querySelector<HTMLElement>(held ? `[data-does="${held}"]:not(:disabled)` : "#none") ?? dialog.querySelector<HTMLElement>('[data-does="close"]'))?.focus();
    try {
      const content = await panel.content(body, signal);
      if (!signal.aborted) refill(body, ...content);
    } catch (error) {
      if (!signal.aborted) refill(body, refused(error instanceof Refusal ? error : new Refusal("Failure", String(error)), () => void show()));
    } finally {
      if (!signal.aborted) body.setAttribute("aria-busy", "false");
    }
  }

  return {
    open(panel) {
      stack.push(panel);
      void show();
    },
    close: () => dialog.close(),
  };
}
