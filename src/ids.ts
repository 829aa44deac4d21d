import { typeidUnboxed } from "typeid-js";

/** What each prefix stands for. */
export type IdPrefix = "ws" | "key" | "id" | "req" | "evt";

/** A new id: the prefix and a UUIDv7 in 26 characters (the TypeID form), so ids sort by the time of their making. */
export function mintId(prefix: IdPrefix): string {
  return typeidUnboxed(prefix);
}

/** Whether a text has the form of an id with this prefix. */
export function isId(prefix: IdPrefix, text: string): boolean {
  return text.startsWith(`${prefix}_`) && /^[0-7][0-9a-hjkmnp-tv-z]{25}$/.test(text.slice(prefix.length + 1));
}
