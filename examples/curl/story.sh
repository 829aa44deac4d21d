#!/bin/sh
# The example over HTTP/JSON. LATCHKEY_CREDENTIAL is a key of the workspace.
set -eu
url=${LATCHKEY_URL:-http://127.0.0.1:8080}

# call <key> <operation> <body>: prints the response, whether it is a success or an error.
call() {
  curl -sS "$url/v2/$2" -H "Authorization: Bearer $1" -H 'Content-Type: application/json' -d "$3"
}

# field <path>: prints one field of the response on standard input.
field() {
  node -p "JSON.parse(require('fs').readFileSync(0)).$1"
}

user=user_$(date +%s)_$$
identity=$(call "$LATCHKEY_CREDENTIAL" identities.createIdentity "{\"externalId\": \"$user\"}" | field data.identityId)
echo "created identity $identity"

created=$(call "$LATCHKEY_CREDENTIAL" keys.createKey "{\"name\": \"example\", \"identityId\": \"$identity\"}")
key_id=$(echo "$created" | field data.keyId)
key=$(echo "$created" | field data.key) # returned only here
echo "created key $key_id"

verify() {
  call "$LATCHKEY_CREDENTIAL" keys.verifyKey "{\"key\": \"$key\"}" | field data.code
}
echo "verified: $(verify)"

call "$LATCHKEY_CREDENTIAL" keys.updateKey "{\"keyId\": \"$key_id\", \"enabled\": false}" >/dev/null
echo "verified: $(verify)"

# Calls with the disabled key are refused. The type is the URL of a page about the error; its end is the error code.
type=$(call "$key" keys.listKeys '{}' | field error.type)
echo "refused: ${type##*/service/}"
