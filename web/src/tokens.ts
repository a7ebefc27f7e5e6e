// The tokens of a query, for what is done with its text while it is being written.

/** Strings, comments, IRIs, words and signs; enough to tell variables from text and where a triple ends. */
export const TOKENS = /"""[\s\S]*?"""|'''[\s\S]*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*|<[^<>\s]*>|[?$]\w+|[\p{L}_:][^\s{}()<>,;"']*|[{}(),;.]/gu;
