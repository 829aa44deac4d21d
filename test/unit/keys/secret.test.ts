import { crc32 } from "node:zlib";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { hashSecret, isWellFormedSecret, mintSecret, randomBytesOf } from "../../../src/keys/secret.js";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

describe("a minted secret", () => {
  it("is the prefix, 33 random characters and 6 of checksum", () => {
    expect(mintSecret().plaintext).toMatch(/^lk_[0-9A-Za-z]{33}[0-9A-Za-z]{6}$/);
    expect(mintSecret("acme").plaintext).toMatch(/^acme_[0-9A-Za-z]{39}$/);
  });

  it.each(["a", "lk", "sk_live", "_", "____", "_a_b_c_", "a_23456789_12345", "1234567890123456", "________________"])(
    "may have the prefix %s",
    (prefix) => {
      const { plaintext, start } = mintSecret(prefix);
      expect(plaintext.startsWith(`${prefix}_`)).toBe(true);
      expect(plaintext).toHaveLength(prefix.length + 40);
      expect(isWellFormedSecret(plaintext)).toBe(true);
      expect(start).toBe(plaintext.slice(0, prefix.length + 5));
    },
  );

  it.each([
    [16, 33],
    [24, 33],
    [25, 34],
    [64, 86],
    [255, 343],
  ])("with at least %i random bytes has %i random characters, and at most 366 in all", (bytes, characters) => {
    const { plaintext, start } = mintSecret("a_23456789_12345", randomBytesOf(bytes));
    expect(plaintext).toMatch(new RegExp(`^a_23456789_12345_[0-9A-Za-z]{${characters + 6}}$`));
    expect(plaintext.length).toBeLessThanOrEqual(366);
    expect(start).toBe(plaintext.slice(0, 21));
    expect(isWellFormedSecret(plaintext)).toBe(true);
    expect(isWellFormedSecret(`${plaintext.slice(0, -1)}${plaintext.endsWith("0") ? "1" : "0"}`)).toBe(false);
  });

  it("has a `start` of its prefix and 4 characters, which does not reveal the rest", () => {
    const { plaintext, start } = mintSecret();
    expect(start).toMatch(/^lk_[0-9A-Za-z]{4}$/);
    expect(plaintext.startsWith(start)).toBe(true);
  });

  it("is stored as its SHA-256 and nothing else", () => {
    const { plaintext, hash } = mintSecret();
    expect(hash).toEqual(hashSecret(plaintext));
    expect(hash).toMatch(/^[0-9a-f]{64}$/);
    expect(hashSecret("abc")).toBe("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  });

  it("is never minted twice, and always well-formed (2,000 times)", () => {
    const minted = Array.from({ length: 2_000 }, () => mintSecret().plaintext);
    expect(new Set(minted).size).toBe(minted.length);
    expect(minted.filter((plaintext) => !isWellFormedSecret(plaintext))).toEqual([]);
  });

  it("uses every character of its alphabet, evenly enough", () => {
    const counts = new Map<string, number>();
    for (let i = 0; i < 2_000; i++) {
      // The first character encodes less than a whole digit of the random number.
      for (const character of mintSecret().plaintext.slice(4, 36)) {
        counts.set(character, (counts.get(character) ?? 0) + 1);
      }
    }
    expect([...counts.keys()].sort()).toEqual([...alphabet].sort());
    const expected = (2_000 * 32) / 62;
    for (const count of counts.values()) expect(Math.abs(count - expected)).toBeLessThan(expected * 0.25);
  });
});

describe("a mistyped secret is detected without a lookup", () => {
  it.each(["lk", "sk_live"])("each character replaced by each other one (prefix %s)", (prefix) => {
    const { plaintext } = mintSecret(prefix);
    const accepted: string[] = [];
    for (let at = 0; at < plaintext.length; at++) {
      for (const character of `${alphabet}_`) {
        const typed = plaintext.slice(0, at) + character + plaintext.slice(at + 1);
        if (typed !== plaintext && isWellFormedSecret(typed)) accepted.push(typed);
      }
    }
    expect(accepted).toEqual([]);
  });

  it("each pair of neighbours swapped (in 100 secrets)", () => {
    const accepted: string[] = [];
    for (let i = 0; i < 100; i++) {
      const { plaintext } = mintSecret();
      for (let at = 0; at + 1 < plaintext.length; at++) {
        const [a = "", b = ""] = plaintext.slice(at, at + 2);
        const typed = plaintext.slice(0, at) + b + a + plaintext.slice(at + 2);
        if (typed !== plaintext && isWellFormedSecret(typed)) accepted.push(typed);
      }
    }
    expect(accepted).toEqual([]);
  });

  it("letters in the other case", () => {
    const { plaintext } = mintSecret();
    expect(isWellFormedSecret(plaintext.toUpperCase())).toBe(false);
    expect(isWellFormedSecret(plaintext.toLowerCase())).toBe(false);
  });

  it("cut off, doubled, or with something around it", () => {
    const { plaintext } = mintSecret();
    const typed = [
      "",
      plaintext.slice(1),
      plaintext.slice(0, -1),
      plaintext + plaintext,
      ` ${plaintext}`,
      `${plaintext}\n`,
      `"${plaintext}"`,
      plaintext.replace("_", "-"),
      plaintext.replace("lk", "łk"),
      plaintext.slice("lk".length),
      `${"x".repeat(17)}${plaintext.slice(2)}`,
    ];
    expect(typed.filter(isWellFormedSecret)).toEqual([]);
  });
});

describe("for any prefix", () => {
  const prefix = fc.stringMatching(/^[A-Za-z0-9_]{1,16}$/);
  const character = fc.oneof(
    fc.constantFrom(...alphabet, "_"),
    fc.nat(0x10ffff).map((codePoint) => String.fromCodePoint(codePoint)),
  );
  const format = /^[A-Za-z0-9_]{1,16}_[0-9A-Za-z]{39,349}$/;

  /** A secret that is generated here, so that a failure can be repeated by its seed. */
  const secret = fc.tuple(prefix, fc.stringMatching(/^[0-9A-Za-z]{33}$/)).map(([text, random]) => {
    const body = `${text}_${random}`;
    return body + checksumOf(body);
  });

  /** The CRC-32 in base62. */
  function checksumOf(body: string): string {
    let digits = "";
    for (let rest = crc32(body); digits.length < 6; rest = Math.floor(rest / 62)) {
      digits = alphabet.charAt(rest % 62) + digits;
    }
    return digits;
  }

  it("a secret is well-formed: its prefix, 33 characters and the CRC-32 of both", () => {
    fc.assert(
      fc.property(prefix, secret, (text, generated) => {
        const { plaintext, start, hash } = mintSecret(text);
        expect(plaintext).toMatch(format);
        expect(plaintext.slice(0, -39)).toBe(`${text}_`);
        expect(plaintext.slice(-6)).toBe(checksumOf(plaintext.slice(0, -6)));
        expect(start).toBe(plaintext.slice(0, text.length + 5));
        expect(hash).toEqual(hashSecret(plaintext));
        expect([plaintext, generated].map(isWellFormedSecret)).toEqual([true, true]);
      }),
      { numRuns: 300 },
    );
  });

  it("one replaced character is always detected: a CRC-32 detects every change within 32 bits", () => {
    fc.assert(
      fc.property(secret, fc.nat(), character, (text, number, other) => {
        const at = number % text.length;
        fc.pre(text.charAt(at) !== other);
        expect(isWellFormedSecret(text.slice(0, at) + other + text.slice(at + 1))).toBe(false);
      }),
      { numRuns: 1_000 },
    );
  });

  it("swapped neighbours are always detected; at the edge of the checksum, unless the new checksum matches", () => {
    fc.assert(
      fc.property(secret, fc.nat(), (text, number) => {
        const at = number % (text.length - 1);
        const typed = text.slice(0, at) + text.charAt(at + 1) + text.charAt(at) + text.slice(at + 2);
        fc.pre(typed !== text);
        const acrossEdge = at + 1 === text.length - 6;
        const matches = acrossEdge && checksumOf(typed.slice(0, -6)) === typed.slice(-6);
        expect(isWellFormedSecret(typed)).toBe(matches);
      }),
      { numRuns: 1_000 },
    );
  });

  // The same suffix maps different CRCs to different CRCs. So an edit collides exactly if the CRC up to its end does.
  it("an inserted character is detected by the format, or unless it leaves the CRC up to it unchanged", () => {
    fc.assert(
      fc.property(secret, fc.nat(), character, (text, number, inserted) => {
        const at = number % (text.length + 1);
        const before = text.slice(0, at);
        const typed = before + inserted + text.slice(at);
        expect(isWellFormedSecret(typed)).toBe(format.test(typed) && crc32(before + inserted) === crc32(before));
      }),
      { numRuns: 1_000 },
    );
  });

  it("a missing character is detected by the format, or unless the CRC up to it is the same without it", () => {
    fc.assert(
      fc.property(secret, fc.nat(), (text, number) => {
        const at = number % text.length;
        const before = text.slice(0, at);
        const typed = before + text.slice(at + 1);
        expect(isWellFormedSecret(typed)).toBe(format.test(typed) && crc32(before + text.charAt(at)) === crc32(before));
      }),
      { numRuns: 1_000 },
    );
  });
});
