import { expect, it } from "vitest";
import { html, json, sentence } from "../../../src/http/pages/html.js";

it("inserted text is escaped, also in attributes; inserted markup is not", () => {
  const text = `<a href="x" title='y'>&amp;</a>`;
  const escaped = "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;amp;&lt;/a&gt;";
  expect(html`<b title="${text}">${text}${html`<i>${7}</i>`}${[text, html`<br>`]}${undefined}</b>`.markup).toBe(
    `<b title="${escaped}">${escaped}<i>7</i>${escaped}<br></b>`,
  );
});

it("backquotes mark code, and the text between them is escaped", () => {
  expect(sentence("Send `Bearer <KEY>`, & `twice`.").markup).toBe(
    "Send <code>Bearer &lt;KEY&gt;</code>, &amp; <code>twice</code>.",
  );
});

it("JSON is rendered completely, with its member names highlighted and its strings escaped", () => {
  expect(json({ "<a>": 'b": "c' }).markup).toBe(
    '<pre class="json"><code>{\n  <b>&quot;&lt;a&gt;&quot;</b>: &quot;b\\&quot;: \\&quot;c&quot;\n}</code></pre>',
  );
});
