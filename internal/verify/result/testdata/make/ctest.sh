#!/usr/bin/env bash
# Makes the ctest fixtures again: cmake, a C compiler and make.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.10)
project(shop C)
enable_testing()
foreach(t good bad crash hang skip gone)
  add_executable(${t} ${t}.c)
  add_test(NAME ${t} COMMAND ${t})
endforeach()
set_tests_properties(hang PROPERTIES TIMEOUT 1)
set_tests_properties(skip PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME off COMMAND good)
set_tests_properties(off PROPERTIES DISABLED TRUE)
C
echo 'int main(void) { return 0; }' >"$work/good.c"
printf '#include <stdio.h>\nint main(void) { printf("1..2\\nbad.c:3: \\001 expected 4, got 3\\n"); return 1; }\n' >"$work/bad.c"
printf '#include <assert.h>\nint main(void) { assert(1 + 1 == 3); return 0; }\n' >"$work/crash.c"
printf '#include <unistd.h>\nint main(void) { sleep(60); return 0; }\n' >"$work/hang.c"
echo 'int main(void) { return 77; }' >"$work/skip.c"
echo 'int main(void) { return not_declared; }' >"$work/gone.c"
{ cmake -S "$work" -B "$work/build" && cmake --build "$work/build" -- -k; } >"$work/log" 2>&1 || true
ctest --test-dir "$work/build" --output-junit "$work/r.xml" >>"$work/log" 2>&1 || true
clean() { sed -E -e "s#$work#/srv/tree#g" -e 's/time="[0-9.]*"/time="0.01"/g' -e 's/timestamp="[^"]*"/timestamp=""/' -e 's/hostname="[^"]*"/hostname=""/'; }
clean <"$work/r.xml" >"$out/ctest.xml"
clean <"$work/log" | grep -vE '^--|^ *[0-9]+/' >"$out/console-ctest.log"
