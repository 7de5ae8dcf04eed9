# SPDX-License-Identifier: Apache-2.0
# Asks $URL for a completion with each body of $BODIES, a line each, and fails unless every answer has
# tokens. Runs in busybox' sh with curl, whose options for TLS are $CURL_TLS. With KEY_NEEDED and no
# $API_KEY it only looks whether strangers are refused.
# No two dollar signs in a row: Kubernetes makes one of them in an argument.
set -eu

ask() { # ask CURL_OPTIONS...
  {
    # Not as an argument, which others can see.
    [ -z "${API_KEY:-}" ] || echo "header = \"authorization: Bearer $API_KEY\""
  } | curl --config - ${CURL_TLS:-} --silent --show-error --max-time "${TIMEOUT:-300}" \
    --header 'content-type: application/json' "$@" "$URL/v1/completions"
}

printf '%s\n' "$BODIES" | while IFS= read -r body; do
  [ -n "$body" ] || continue
  echo "asking $body"
  if [ -n "${KEY_NEEDED:-}" ] && [ -z "${API_KEY:-}" ]; then
    code=$(ask --data "$body" --output /dev/null --write-out '%{http_code}')
    [ "$code" = 401 ] || { echo "without a key the answer is $code, not 401" >&2; exit 1; }
    echo "a key is needed, and test.apiKeySecret names none: nothing else was asked"
    continue
  fi
  answer=$(ask --data "$body" --fail-with-body) || { echo "refused: $answer" >&2; exit 1; }
  case $answer in
    *'"completion_tokens":'[1-9]*) echo "answered: $answer" ;;
    *) echo "no tokens: $answer" >&2; exit 1 ;;
  esac
done
