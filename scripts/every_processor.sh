#!/usr/bin/env bash
# Run the README's two commands in a fresh clone of HEAD under each kernel of OpenBLAS and each of torch, and say which passed.
set -uo pipefail
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone --quiet "$(git -C "$(dirname "$0")" rev-parse --show-toplevel)" "$clone/groupwise"
[ -d "$(dirname "$0")/../../shared" ] && ln -s "$(cd "$(dirname "$0")/../../shared" && pwd)" "$clone/shared"
cd "$clone/groupwise" || exit 1
failed=0
for blas in Haswell Sandybridge Prescott; do
  for torch in default avx2; do
    for target in demo test; do
      log="$clone/$blas-$torch-$target.log"
      if OPENBLAS_CORETYPE=$blas ATEN_CPU_CAPABILITY=$torch make --no-print-directory "$target" >"$log" 2>&1; then state=passed; else state=FAILED failed=1; fi
      echo "OpenBLAS $blas, torch $torch, make $target: $state; $(tail -n 1 "$log")"
      [ "$state" = passed ] || grep -E '^(FAILED|ERROR)' "$log"
    done
  done
done
exit $failed
