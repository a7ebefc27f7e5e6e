// What stands where an answer would: nothing yet, on its way, or refused.
import { hasToken, type Refusal, useToken } from "./api";
import { el } from "./dom";

export const waiting = (text: string): HTMLElement =>
  el("div", { class: "notice waiting" }, el("span", { class: "spinner", "aria-hidden": "true" }), el("p", {}, `${text} …`));

export const nothing = (title: string, text: string): HTMLElement =>
  el("div", { class: "notice" }, el("p", { class: "notice-title" }, title), el("p", {}, text));

/** A refusal with its hint, and a way on: another try, or the token that the server asks for. */
export function refused(error: Refusal, again: () => void): HTMLElement {
  const frame = el("div", { class: "notice failure", role: "alert" }, el("p", { class: "notice-title" }, error.message), error.hint && el("p", {}, error.hint));
  if (error.status === 401 || (error.status === 403 && hasToken())) frame.append(tokenForm(again));
  else if (error.status === 0 || error.status >= 429) frame.append(el("button", { type: "button", class: "quiet", click: again }, "Try again"));
  if (error.requestId && error.status >= 500) frame.append(el("p", { class: "about" }, "Request ", el("code", {}, error.requestId)));
  return frame;
}

function tokenForm(again: () => void): HTMLElement {
  const input = el("input", { type: "password", autocomplete: "off", required: true, "aria-label": "Token" });
  const enter = (event: Event) => {
    event.preventDefault();
    useToken(input.value.trim());
    again();
  };
  return el("form", { class: "token", submit: enter }, input, el("button", { class: "primary" }, "Use this token"));
}
