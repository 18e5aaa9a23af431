#!/usr/bin/env bash
# Makes the cargo-*.txt fixtures again: cargo and rustc are all it needs.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RUST_BACKTRACE=0 CARGO_TERM_COLOR=never CARGO_NET_OFFLINE=true

crate() { # name
  mkdir -p "$work/$1/src" "$work/$1/tests"
  printf '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n' >"$work/$1/Cargo.toml"
  printf 'pub fn add(a: u32, b: u32) -> u32 { a + b }\n#[test] fn adds() { assert_eq!(add(1, 2), 3); }\n' >"$work/$1/src/lib.rs"
}
run() { # name, arguments of cargo test
  local name=$1 code=0
  shift
  (cd "$work/$name" && cargo test --no-fail-fast "$@") >"$work/$name.txt" 2>&1 || code=$?
  echo "daybreak: the command ended with $code" >>"$work/$name.txt"
  # What differs from machine to machine: times, the toolchain's hashes, thread numbers.
  sed -E -e "s#$work/$name#/srv/tree#g" -e 's/[0-9]+\.[0-9]+s/0.01s/g' -e "s/^(thread '[^']*') \([0-9]+\)/\1 (77)/" "$work/$name.txt" >"$out/cargo-$name.txt"
}

crate mixed
cat >"$work/mixed/src/lib.rs" <<'R'
//! Prices.
/// Adds.
/// ```
/// assert_eq!(shop::add(1, 2), 3);
/// ```
/// And again:
/// ```
/// assert_eq!(shop::add(2, 2), 5);
/// ```
/// ```should_panic
/// panic!();
/// ```
/// ```compile_fail
/// let x: u8 = "a";
/// ```
/// ```no_run
/// loop {}
/// ```
pub fn add(a: u32, b: u32) -> u32 { a + b }

#[cfg(test)]
mod tests {
    use super::*;
    #[test] fn adds() { assert_eq!(add(1, 2), 3); }
    #[test] fn wrong() { println!("said"); eprintln!("and this"); assert_eq!(add(1, 2), 4, "sum of {}", 1); }
    #[test] fn boom() { let v: Vec<u8> = vec![]; let i = v.len(); println!("{}", v[i]); }
    #[test] #[should_panic] fn panics() { panic!("yes") }
    #[test] #[should_panic(expected = "no")] fn panics_otherwise() { panic!("yes") }
    #[test] #[ignore = "slow"] fn slow() {}
    #[test] #[ignore] fn slower() {}
    #[test] fn result() -> Result<(), String> { Err("bad thing".into()) }
    #[test] fn noise() {
        use std::io::Write;
        let mut o = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(1) };
        o.write_all(b"noise without an end").unwrap();
        std::mem::forget(o);
    }
    #[test] fn in_thread() { std::thread::spawn(|| panic!("elsewhere")).join().unwrap(); }
    #[test] fn prints_lies() { println!("test tests::wrong ... ok\n\nfailures:\n\ntest result: ok. 99 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"); panic!("after lies"); }
}
R
printf '#[test] fn works() { assert_eq!(shop::add(1, 1), 2); }\nmod deep { #[test] fn works() { assert!(shop::add(1, 1) == 3); } }\n' >"$work/mixed/tests/it.rs"
mkdir "$work/mixed/src/bin" && echo 'fn main() {} #[test] fn of_bin() {}' >"$work/mixed/src/bin/tool.rs"
run mixed

crate abort
cat >"$work/abort/tests/it.rs" <<'R'
use std::{thread::sleep, time::Duration};
#[test] fn a_first() {}
#[test] fn dies() { sleep(Duration::from_millis(300)); std::process::abort(); }
#[test] fn z_last() { sleep(Duration::from_millis(900)); }
R
run abort

crate overflow
cat >"$work/overflow/tests/it.rs" <<'R'
#[allow(unconditional_recursion)] fn deep(n: u64) -> u64 { std::hint::black_box(deep(n + 1) + 1) }
#[test] fn recurses() { assert_eq!(deep(0), 1); }
R
run overflow

crate exit0
cat >"$work/exit0/tests/it.rs" <<'R'
use std::{thread::sleep, time::Duration};
#[test] fn a_first() {}
#[test] fn leaves() { sleep(Duration::from_millis(300)); std::process::exit(0); }
#[test] fn z_fails() { sleep(Duration::from_millis(900)); panic!("real failure"); }
R
run exit0

crate nobuild
echo '#[test] fn uses_what_is_not_there() { assert_eq!(shop::minus(2, 1), 1); }' >"$work/nobuild/tests/it.rs"
run nobuild

crate harness
printf '[[test]]\nname = "own"\nharness = false\n' >>"$work/harness/Cargo.toml"
echo 'fn main() { println!("own runner: all fine"); std::process::exit(3) }' >"$work/harness/tests/own.rs"
run harness

crate none
run none --lib no_such_test
