import type { DescEnum, DescEnumValue, DescField, DescMessage, DescMethod, DescService } from "@bufbuild/protobuf";
import { getComments } from "@bufbuild/protoplugin";

type Commented = DescEnum | DescEnumValue | DescField | DescMessage | DescMethod | DescService;

/** The comment of a declaration, its lines joined to paragraphs. The linter ensures that every declaration has one. */
export function commentOf(declared: Commented): string {
  const { leading = "" } = getComments(declared as never); // the same descriptor, typed by another version
  return leading
    .split(/\n\s*\n/)
    .map((paragraph) => paragraph.replace(/\s+/g, " ").trim())
    .join("\n\n");
}

/** Splits a comment into its first sentence, which OpenAPI shows as plain text, and the rest, which is Markdown. */
export function splitSummary(comment: string): { summary: string; rest: string } {
  const [, summary = comment, rest = ""] = /^(.*?)\.(?:\s+(.*))?$/s.exec(comment) ?? [];
  return { summary: summary.replaceAll("`", ""), rest };
}

/** Joins the paragraphs that are not empty. */
export function paragraphs(...all: readonly string[]): string {
  return all.filter((paragraph) => paragraph !== "").join("\n\n");
}
