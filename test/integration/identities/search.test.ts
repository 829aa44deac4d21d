import { expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp } from "../../support/harness.js";

// The other tests run on databases with the locale C, which knows only the case of ASCII letters.
const locales = {
  "C.UTF-8": "locale_provider builtin builtin_locale 'C.UTF-8'",
  ICU: "locale_provider icu icu_locale 'tr'",
};

it.each(Object.entries(locales))(
  "identity search is case-insensitive for all letters on a database with the locale %s",
  async (_, locale) => {
    const database = await createDatabase(`template0 encoding 'UTF8' locale 'C' ${locale}`);
    const app = await openTestApp({ databaseUrl: database.url });
    try {
      const { key } = await createWorkspace(app.httpUrl);
      const externalId = "École_ΟΔΟΣ_TITLE";
      await succeed(app.httpUrl, "identities.createIdentity", key, { externalId });
      for (const search of [externalId, "école", "ÉCOLE", "οδος", "οδοσ", "title"]) {
        const found = await succeed(app.httpUrl, "identities.listIdentities", key, { search });
        expect(found, search).toMatchObject([{ externalId }]);
      }
    } finally {
      await app.close();
      await database.drop();
    }
  },
);
