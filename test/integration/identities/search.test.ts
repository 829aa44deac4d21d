import { expect, it } from "vitest";
import { succeed } from "../../support/calls.js";
import { createWorkspace } from "../../support/clients/http-requests.js";
import { createDatabase, openTestApp } from "../../support/harness.js";

// The other tests run on databases of the locale C, which knows the case of ASCII letters alone.
const locales = {
  "C.UTF-8": "locale_provider builtin builtin_locale 'C.UTF-8'",
  ICU: "locale_provider icu icu_locale 'tr'",
};

it.each(Object.entries(locales))(
  "search puts the case of all letters aside on a database with %s",
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
