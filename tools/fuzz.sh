#!/usr/bin/env bash
# Fuzz decoders: tools/fuzz.sh SECONDS           every target, SECONDS each
#                tools/fuzz.sh TARGET SECONDS    one target
#                tools/fuzz.sh --list            their names
# No nightly toolchain, cargo-fuzz or clang is needed. A stable code generation pass adds the
# coverage, the crate libfuzzer-sys contains libFuzzer (a C++ compiler builds it), and with
# RUSTC_BOOTSTRAP=1 the stable compiler adds the address sanitizer. DRAY_FUZZ_SANITIZER=none omits
# the sanitizer, for hosts without its runtime. The corpus is in engine/fuzz/corpus, and findings
# are in engine/fuzz/artifacts.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fuzz=$root/engine/fuzz
targets=()
for file in "$fuzz"/fuzz_targets/*.rs; do
    targets+=("$(basename "$file" .rs)")
done

usage() {
    echo "usage: tools/fuzz.sh [TARGET] SECONDS | --list; targets: ${targets[*]}" >&2
    exit 2
}

case $# in
    1)
        if [ "$1" = --list ]; then
            printf '%s\n' "${targets[@]}"
            exit
        fi
        seconds=$1
        ;;
    2)
        [ -f "$fuzz/fuzz_targets/$1.rs" ] || usage
        targets=("$1")
        seconds=$2
        ;;
    *) usage ;;
esac
[[ $seconds =~ ^[1-9][0-9]*$ ]] || usage

host=$(rustc -vV | sed -n 's/^host: //p')
# The flags of cargo-fuzz, without those that only clang's linker knows.
flags=(
    --cfg fuzzing
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    -Cforce-frame-pointers
)
if [ "${DRAY_FUZZ_SANITIZER:-address}" = address ]; then
    flags+=(-Zsanitizer=address)
    export RUSTC_BOOTSTRAP=1
fi
# Use a separate build folder. With other flags in the same folder, cargo would rebuild everything.
target_dir=${CARGO_TARGET_DIR:-$root/engine/target}/fuzz

bins=()
for target in "${targets[@]}"; do
    bins+=(--bin "$target")
done
RUSTFLAGS="${flags[*]}" CARGO_TARGET_DIR=$target_dir cargo build --quiet --locked --release \
    --manifest-path "$fuzz/Cargo.toml" --target "$host" "${bins[@]}"

for target in "${targets[@]}"; do
    mkdir -p "$fuzz/corpus/$target" "$fuzz/artifacts/$target"
    seeds=()
    golden=$root/integration/${target%%_*}/golden
    if [ -d "$golden" ]; then
        seeds+=("$golden")
    fi
    echo "fuzz: $target for $seconds s"
    # Limit each allocation and all allocations together, because a claimed length must not cause a
    # large allocation.
    "$target_dir/$host/release/$target" "$fuzz/corpus/$target" "${seeds[@]}" \
        -artifact_prefix="$fuzz/artifacts/$target/" -max_total_time="$seconds" -max_len=16384 \
        -rss_limit_mb=1024 -malloc_limit_mb=32 -timeout=10 -print_final_stats=1 -verbosity=0
done
