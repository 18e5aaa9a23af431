#!/usr/bin/env bash
# Makes the rspec-*.json fixtures again: RSpec 3.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() { # name
  (cd "$work/$1" && rspec --format json --out "$work/$1.json" --order defined) >/dev/null 2>&1 || true
  sed -E -e "s#$work/$1#/srv/tree#g" -e 's/"run_time":[0-9.e-]+/"run_time":0.01/g' -e 's/"(duration|load_time)":[0-9.e-]+/"\1":0.01/g' -e 's/in [0-9.]+ seconds/in 0.01 seconds/g' "$work/$1.json" >"$out/rspec-$1.json"
}
mkdir -p "$work/mixed/spec" "$work/load/spec" "$work/focus/spec"
cat >"$work/mixed/spec/price_spec.rb" <<'R'
RSpec.describe "Price" do
  it("adds") { expect(1 + 2).to eq 3 }
  it("is wrong") { expect(1 + 2).to eq 4 }
  it("raises") { nil.length }
  it("waits")
  it("is left out", skip: "no network") { raise }
  it("is pending and fails") { pending "later"; expect(1).to eq 2 }
  it("is pending and passes") { pending "later"; expect(1).to eq 1 }
  it { expect(2).to be_even }
  context "same" do
    2.times { |i| it("name") { expect(i).to eq 0 } }
  end
  context "hook" do
    before(:all) { raise "no database" }
    it("never") {}
  end
end
R
run mixed
echo 'require "missing_thing"; RSpec.describe("x") { it("t") {} }' >"$work/load/spec/bad_spec.rb"
echo 'RSpec.describe("y") { it("t") {} }' >"$work/load/spec/good_spec.rb"
run load
cat >"$work/focus/spec/f_spec.rb" <<'R'
RSpec.configure { |c| c.filter_run_when_matching :focus }
RSpec.describe("f") { fit("chosen") {}; it("left out") { raise } }
R
run focus
