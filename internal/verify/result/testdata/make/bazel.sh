#!/usr/bin/env bash
# Makes the bazel-* fixtures again, with Bazel 2.1 from the npm package @bazel/bazel. That one knows
# no module registry; what it would fetch for shell tests is stood in for by empty rules.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
(cd "$work" && npm init -y && npm install @bazel/bazel@2.1.0) >/dev/null 2>&1
bazel=$(ls "$work"/node_modules/@bazel/bazel-linux_x64/bazel-*)
chmod +x "$bazel"
for r in rules_cc/cc rules_java/java cov; do mkdir -p "$work/$r"; done
touch "$work"/{rules_cc,rules_java,cov}/WORKSPACE "$work"/rules_cc/cc/BUILD "$work"/rules_java/java/BUILD
for s in cc_binary cc_library cc_test cc_import cc_proto_library objc_library objc_import cc_toolchain cc_toolchain_suite fdo_profile; do echo "$s = native.$s"; done >"$work/rules_cc/cc/defs.bzl"
for s in java_binary java_import java_library java_test java_proto_library java_runtime java_toolchain java_plugin; do echo "$s = getattr(native, '$s', None)"; done >"$work/rules_java/java/defs.bzl"
echo 'exports_files(["coverage_report_generator", "lcov_merger"])' >"$work/cov/BUILD"
printf '#!/bin/bash\n' | tee "$work/cov/coverage_report_generator" >"$work/cov/lcov_merger"
chmod +x "$work"/cov/*r

mkdir -p "$work/tree/shop"
cd "$work/tree"
touch WORKSPACE
cat >shop/BUILD <<'B'
sh_test(name = "good_test", srcs = ["good.sh"])
sh_test(name = "bad_test", srcs = ["bad.sh"])
sh_test(name = "flaky_test", srcs = ["flaky.sh"], flaky = True)
sh_test(name = "slow_test", srcs = ["slow.sh"], timeout = "short")
genrule(name = "broken", outs = ["broken.sh"], cmd = "echo no compiler >&2; exit 1")
sh_test(name = "gone_test", srcs = ["broken.sh"])
B
printf '#!/bin/bash\nexit 0\n' >shop/good.sh
printf '#!/bin/bash\necho "expected 4, got 3"; exit 1\n' >shop/bad.sh
printf '#!/bin/bash\n[ -e %s/once ] && exit 0; touch %s/once; exit 1\n' "$work" "$work" >shop/flaky.sh
printf '#!/bin/bash\nsleep 60\n' >shop/slow.sh
chmod +x shop/*.sh
"$bazel" --batch --output_user_root="$work/root" test --override_repository=rules_{cc="$work/rules_cc",java="$work/rules_java"} --override_repository=remote_coverage_tools="$work/cov" \
  --test_timeout=2 --keep_going --spawn_strategy=local --build_event_json_file="$work/bep.json" //... >/dev/null 2>&1 || true
# Events about this machine and its user say nothing of tests.
grep -vE '"id":\{"(started|progress|workspaceStatus|optionsParsed|structuredCommandLine|unstructuredCommandLine|workspace|buildMetrics|buildToolLogs|namedSet)' "$work/bep.json" |
  sed -E -e 's/,"children":\[[^]]*\]//' -e "s#$work/root/[0-9a-f]*/execroot/__main__#/srv/out#g" -e "s#$work/tree#/srv/tree#g" -e 's/"(uuid|serverPid|testAttemptStartMillisEpoch|testAttemptDurationMillis|startTimeMillis|finishTimeMillis|[a-zA-Z]*(Time|Duration)Millis)":"[^"]*"/"\1":"1"/g' -e 's/"optionsDescription":"[^"]*",?//' >"$out/bazel-bep.json"
echo '{"id":{"buildToolLogs":{}},"buildToolLogs":{},"lastMessage":true}' >>"$out/bazel-bep.json"
for t in good bad; do sed -E 's/time="[0-9.]*"/time="1"/g' bazel-testlogs/shop/${t}_test/test.xml >"$out/bazel-$t.xml"; done
