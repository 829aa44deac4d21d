import type { DescEnum, DescEnumValue, DescField, DescMessage, DescMethod, DescService } from "@bufbuild/protobuf";
import { getComments } from "@bufbuild/protoplugin";

type Commented = DescEnum | DescEnumValue | DescField | DescMessage | DescMethod | DescService;

/** The comment above a declaration, its lines joined to paragraphs. Every declaration has one: the linter sees to it. */
export function commentOf(declared: Commented): string {
  const { leading = "" } = getComments(declared as never); // the same descriptor by another version's type
  return leading
    .split(/\n\s*\n/)
    .map((paragraph) => paragraph.replace(/\s+/g, " ").trim())
    .join("\n\n");
}

/** The first sentence, and what follows it. */
export function headAndRest(comment: string): { head: string; rest: string } {
  const [, head = comment, rest = ""] = /^(.*?)\.(?:\s+(.*))?$/s.exec(comment) ?? [];
  return { head, rest };
}

/** Paragraphs, those that are empty left out. */
export function paragraphs(...all: readonly string[]): string {
  return all.filter((paragraph) => paragraph !== "").join("\n\n");
}
