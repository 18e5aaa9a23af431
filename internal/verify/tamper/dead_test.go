package tamper

import (
	"cmp"
	"regexp"
	"strings"
	"testing"
)

// around is a test of a language with one check, CHECK, and what may be put around it.
type around struct {
	path, frame string // the frame has BODY
	check       string
	plain       string   // the body without anything around it; CHECK where it is not given
	dead        []string // bodies in which CHECK never runs
	live        []string // bodies in which it does, and that no one need look at
}

// emptied runs each body against the check alone.
func (l around) run(t *testing.T) {
	t.Helper()
	body := func(s string) string {
		return strings.Replace(l.frame, "BODY", regexp.MustCompile(`\bCHECK\b`).ReplaceAllLiteralString(s, l.check), 1)
	}
	old := body(cmp.Or(l.plain, "CHECK"))
	for i, group := range [][]string{l.dead, l.live} {
		for _, b := range group {
			if i == 0 {
				run(t, []example{
					{"dead " + b, l.path, old, body(b), []string{"test_emptied/block"}},
					{"both dead " + b, l.path, body(b), body(b) + "\n", nil},
				})
				// New tests that check nothing are worth a word, no more.
				r := Analyse([]FileChange{{Path: l.path, New: []byte(body(b))}}, classify)
				if len(r.Findings) != 1 || r.Findings[0].Severity != "info" || r.Findings[0].SubKind != TestEmptied {
					t.Errorf("new, %s:\n%s", b, show(r))
				}
				continue
			}
			run(t, []example{{"live " + b, l.path, old, body(b), nil}})
			if r := Analyse([]FileChange{{Path: l.path, New: []byte(body(b))}}, classify); len(r.Findings) > 0 {
				t.Errorf("new, %s:\n%s", b, show(r))
			}
		}
	}
}

func TestDeadGo(t *testing.T) {
	around{
		path: "a_test.go", frame: "package a\n\nfunc TestA(t *testing.T) {\n\tx := F()\nBODY\n\t_ = x\n}\n", check: "if x != 1 {\n\t\tt.Fatalf(\"got %d\", x)\n\t}\n",
		dead: []string{
			"if false {\nCHECK}", "if !true {\nCHECK}", "if 1 > 2 {\nCHECK}", "if y := 1; false && y > 0 {\nCHECK}", "if true {\n} else {\nCHECK}", "if true {\n} else if x > 0 {\nCHECK}",
			"for range 0 {\nCHECK}", "for i := 0; i < 0; i++ {\nCHECK}", "for i := 3; i < 3; i++ {\nCHECK}", "for false {\nCHECK}", "for range []int{} {\nCHECK}", "for range []int(nil) {\nCHECK}", "for _, y := range map[string]int{} {\n_ = y\nCHECK}",
			"cases := []int{}\nfor range cases {\nCHECK}", "run := false\nif run {\nCHECK}", "const on = false\nif on {\nCHECK}",
			"switch false {\ncase true:\nCHECK}", "switch {\ncase false:\nCHECK}", "switch 1 {\ncase 2:\nCHECK}",
			"if x > 0 {\nreturn\nCHECK}", "for {\nbreak\nCHECK}", "for range 3 {\ncontinue\nCHECK}", "func() {\nreturn\nCHECK}()",
			"_ = func() {\nCHECK}", "check := func() {\nCHECK}\n_ = check", "var check func()\ncheck = func() {\nCHECK}\n_ = check", "check := func(t *testing.T) {\nCHECK}\nif false {\ncheck(t)\n}",
			"a := func() {\nCHECK}\nb := func() {\na()\n}\n_ = b", "fs := []func(){func() {\nCHECK}}\n_ = fs",
			"go func() {\nCHECK}()",
			"var none []int\nfor range none {\nCHECK}", "for range make([]int, 0) {\nCHECK}", "t := &testing.T{}\nCHECK", "t := new(testing.T)\nCHECK", "func(t *testing.T) {\nCHECK}(&testing.T{})", "check := func() {\nCHECK}\nif check == nil {\n}",
		},
		live: []string{
			"for range 1 {\nCHECK}", "for i := 0; i < 1; i++ {\nCHECK}", "for _, y := range []int{1} {\n_ = y\nCHECK}", "cases := []int{}\ncases = append(cases, 1)\nfor range cases {\nCHECK}",
			"t.Run(\"a\", func(t *testing.T) {\nCHECK})", "check := func() {\nCHECK}\ncheck()", "var check func(int)\ncheck = func(n int) {\nif n > 0 {\ncheck(n-1)\n}\nCHECK}\ncheck(3)", "func() {\nCHECK}()", "defer func() {\nCHECK}()",
			"done := make(chan bool)\ngo func() {\nCHECK\ndone <- true\n}()\n<-done", "var wg sync.WaitGroup\nwg.Add(1)\ngo func() {\ndefer wg.Done()\nCHECK}()\nwg.Wait()", "var g errgroup.Group\ng.Go(func() error {\nCHECK\nreturn nil\n})\n_ = g.Wait()",
			"fs := []func(){func() {\nCHECK}}\nfor _, f := range fs {\nf()\n}", "tests := []struct {\nname string\ncheck func()\n}{\n{\"a\", func() {\nCHECK}},\n}\nfor _, tt := range tests {\ntt.check()\n}",
			"srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {\nCHECK}))\ndefer srv.Close()", "h := &fake{call: func() {\nCHECK}}\nUse(h)", "t.Cleanup(func() {\nCHECK})", "var all []int\nall = append(all, 1)\nfor range all {\nCHECK}", "inner := &testing.T{}\n_ = inner\nCHECK", "timeNow = func() {\nCHECK}",
			"go func() {\nCHECK}()\ntime.Sleep(time.Second)",
			"{\nCHECK}",
		},
	}.run(t)
}

func TestDeadPython(t *testing.T) {
	around{
		path: "test_a.py", frame: "import a\n\n\ndef test_a():\n    x = a.f()\nBODY\n    print(x)\n", check: "assert x == 1", plain: "    CHECK",
		dead: []string{
			"    if False:\n        CHECK", "    if 0:\n        CHECK", "    if None:\n        CHECK", "    if \"\":\n        CHECK", "    if []:\n        CHECK", "    if not True:\n        CHECK", "    if TYPE_CHECKING:\n        CHECK", "    if typing.TYPE_CHECKING:\n        CHECK", "    if False and x: CHECK",
			"    if True:\n        pass\n    else:\n        CHECK", "    while False:\n        CHECK", "    while 0:\n        CHECK", "    for _ in []:\n        CHECK", "    for _ in ():\n        CHECK", "    for _ in range(0):\n        CHECK", "    for _ in {}.items():\n        CHECK",
			"    cases = []\n    for c in cases:\n        CHECK", "    on = False\n    if on:\n        CHECK", "    match 1:\n        case 2:\n            CHECK",
			"    def inner():\n        CHECK", "    async def inner():\n        CHECK", "    def inner():\n        CHECK\n    _ = inner", "    def inner():\n        CHECK\n    inner", "    def inner():\n        CHECK\n    if False:\n        inner()",
			"    class Inner:\n        def check(self):\n            CHECK", "    def one():\n        CHECK\n    def two():\n        one()", "    async def inner():\n        CHECK\n    inner()", "    def inner():\n        CHECK\n        yield\n    inner()",
			"    for y in [1]:\n        continue\n        CHECK", "    with open(x):\n        return\n        CHECK",
		},
		live: []string{
			"    for _ in [1]:\n        CHECK", "    for _ in range(2):\n        CHECK", "    def inner():\n        CHECK\n    inner()", "    def inner():\n        CHECK\n    a.call(inner)", "    def inner():\n        CHECK\n    assert_called = a.on(x, inner)", "    async def inner():\n        CHECK\n    asyncio.run(inner())",
			"    @a.route\n    def inner():\n        CHECK", "    class Inner(a.Base):\n        def check(self):\n            CHECK\n    a.use(Inner())", "    with a.ctx():\n        CHECK", "    def inner():\n        CHECK\n        yield\n    for _ in inner():\n        pass", "    cases = []\n    cases.append(1)\n    for c in cases:\n        CHECK",
			"    try:\n        x += 1\n    finally:\n        CHECK", "    def inner():\n        CHECK\n    t = threading.Thread(target=inner)\n    t.start()",
		},
	}.run(t)
	class := "import unittest\n\n\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        x = f()\nBODY\n"
	around{
		path: "test_b.py", frame: class, check: "self.assertEqual(f(), 1)", plain: "        CHECK",
		dead: []string{
			"        False and CHECK", "        True or CHECK", "        CHECK if False else None", "        [CHECK for _ in []]", "        check = lambda: CHECK", "        CHECK\n        yield",
		},
		live: []string{"        check = lambda: CHECK\n        check()", "        self.later(lambda: CHECK)"},
	}.run(t)
	around{
		path: "test_c.py", frame: class, check: "self.assertEqual(f(y for y in range(0)), 0 if False else 1)", plain: "        CHECK",
		live: []string{"        with self.subTest():\n            CHECK"},
	}.run(t)
}

func TestDeadJavaScript(t *testing.T) {
	around{
		path: "a.test.js", frame: "test('a', async () => {\n  const x = f();\nBODY\n});\n", check: "expect(x).toBe(1);",
		dead: []string{
			"if (0) {\nCHECK\n}", "if (false) CHECK", "if (null) { CHECK }", "if (!1) { CHECK }", "if (true) {} else { CHECK }", "while (false) { CHECK }", "for (; false;) { CHECK }", "for (let i = 0; i < 0; i++) { CHECK }", "for (const y of []) { CHECK }", "for (const y in {}) { CHECK }", "[].forEach(() => { CHECK });", "[].map((y) => expect(x).toBe(1));",
			"const cases = [];\ncases.forEach((c) => { CHECK });", "const cases = [];\nfor (const c of cases) { CHECK }", "switch (1) { case 2: CHECK }", "switch (true) {\ncase false:\nCHECK\n}", "false && CHECK", "true || CHECK", "false ? expect(x).toBe(1) : null;",
			"const check = () => { CHECK };", "const check = () => expect(x).toBe(1);", "function check() {\nCHECK\n}", "const check = function () { CHECK };", "const check = () => { CHECK }\nvoid check", "() => { CHECK };", "const o = { check: () => { CHECK } };", "class Check { run() { CHECK } }", "if (x) { return; CHECK }", "for (;;) { break; CHECK }",
			"Promise.resolve().then(() => { CHECK });", "setTimeout(() => { CHECK }, 100);",
			"new Promise(() => { CHECK });", "(async () => { CHECK })();", "const g = function* () { CHECK }; g();", "async function check() { CHECK }\ncheck();", "new Array(0).forEach(() => { CHECK });", "Object.keys({}).forEach(() => { CHECK });", "void 0 && expect(x).toBe(1);",
		},
		live: []string{
			"for (const y of [1]) { CHECK }", "[1].forEach(() => { CHECK });", "const check = () => { CHECK };\ncheck();", "function check() {\nCHECK\n}\ncheck();", "const check = () => { CHECK }\n[1].forEach(check)", "(() => { CHECK })();", "(function () { CHECK })();", "await p.then(() => { CHECK });", "return p.then(() => { CHECK });",
			"emitter.on('x', () => { CHECK });", "const o = { check: () => { CHECK } };\nuse(o);", "class Check { run() { CHECK } }\nnew Check().run();", "mock.impl = () => { CHECK };", "await new Promise((r) => setTimeout(() => { CHECK r(); }, 1));", "Promise.resolve().then(() => { CHECK });\nawait flush();", "const cases = [];\ncases.push(1);\ncases.forEach((c) => { CHECK });", "await (async () => { CHECK })();", "async function check() { CHECK }\nawait check();", "const p = new Promise((r) => { CHECK r(); });\nawait p;", "Object.keys(x).forEach(() => { CHECK });", "await Promise.all([1].map(async () => { CHECK }));",
		},
	}.run(t)
	old := "it('a', async () => {\n  await expect(f()).rejects.toThrow('x');\n  expect(1).toBe(g());\n});\n"
	run(t, []example{
		{"no longer awaited", "a.test.js", old, strings.Replace(old, "await ", "", 1), []string{"assertion_removed/warn"}},
		{"returned instead", "a.test.js", old, strings.Replace(old, "await ", "return ", 1), []string{"assertion_removed/warn"}}, // the one after it
		{"a test in dead code", "a.test.js", old, "if (false) {\n" + old + "}\n", []string{"test_skipped/block"}},
	})
}

func TestDeadBraces(t *testing.T) {
	around{
		path: "src/test/java/ATest.java", frame: "class ATest {\n  @Test\n  void a() {\n    int x = f();\nBODY\n    g(x);\n  }\n}\n", check: "assertEquals(1, x);",
		dead: []string{
			"if (false) { CHECK }", "if (false) CHECK", "while (false) { CHECK }", "for (; false; ) { CHECK }", "for (int i = 0; i < 0; i++) { CHECK }", "for (String s : List.of()) { CHECK }", "for (String s : new ArrayList<String>()) { CHECK }", "for (int i : new int[0]) { CHECK }", "List.of().forEach(y -> assertEquals(1, x));",
			"Runnable r = () -> { CHECK };", "Runnable r = () -> assertEquals(1, x);", "class Inner { void check() { CHECK } }", "if (x > 0) { return; CHECK }", "boolean on = false;\nif (on) { CHECK }", "switch (1) { case 2: CHECK }", "new Thread(() -> { CHECK }).start();", "Optional.empty().ifPresent(y -> assertEquals(1, x));", "if (Boolean.FALSE) { CHECK }", "Object o = new Object() { void check() { CHECK } };",
		},
		live: []string{
			"Runnable r = () -> { CHECK };\nr.run();", "run(() -> { CHECK });", "for (int i : new int[]{1}) { CHECK }", "class Inner { void check() { CHECK } }\nnew Inner().check();", "try (var s = open()) { CHECK }", "new Expectations() {{ CHECK }};", "Thread th = new Thread(() -> { CHECK });\nth.start();\nth.join();", "Object o = new Object() { void check() { CHECK } };\no.check();", "executor.submit(() -> { CHECK }).get();", "command.execute(() -> { CHECK });",
		},
	}.run(t)
	around{
		path: "Shop.Tests/ATests.cs", frame: "public class ATests {\n  [Fact]\n  public void A() {\n    var x = F();\nBODY\n    G(x);\n  }\n}\n", check: "Assert.Equal(1, x);",
		dead: []string{
			"if (false) { CHECK }", "while (false) { CHECK }", "foreach (var y in new int[0]) { CHECK }", "foreach (var y in Array.Empty<int>()) { CHECK }", "foreach (var y in Enumerable.Empty<int>()) { CHECK }", "Action a = () => { CHECK };", "Action a = () => Assert.Equal(1, x);", "void Check() { CHECK }", "void Check() => Assert.Equal(1, x);",
			"_ = () => { CHECK };", "Action a = delegate { CHECK };", "if (x > 0) { return; CHECK }", "\n#if NEVER\nCHECK\n#endif\n", "Task.Run(() => { CHECK });",
		},
		live: []string{
			"Action a = () => { CHECK };\na();", "void Check() { CHECK }\nCheck();", "void Check() => Assert.Equal(1, x);\nCheck();", "Run(() => { CHECK });", "foreach (var y in new[] { 1 }) { CHECK }", "using (var s = Open()) { CHECK }", "await Task.Run(() => { CHECK });", "Task.Run(() => { CHECK }).Wait();", "var task = Task.Run(() => { CHECK });\ntask.Wait();",
		},
	}.run(t)
	around{
		path: "tests/a.rs", frame: "#[test]\nfn a() {\n    let x = f();\nBODY\n    g(x);\n}\n", check: "assert_eq!(x, 1);",
		dead: []string{
			"if false { CHECK }", "while false { CHECK }", "for _ in 0..0 { CHECK }", "for _ in Vec::<i32>::new() { CHECK }", "for _ in std::iter::empty::<i32>() { CHECK }", "for _ in vec![] { CHECK }", "let _ = || { CHECK };", "let check = || { CHECK };", "fn check() { CHECK }", "fn check() { CHECK }\nlet _ = check;",
			"match 1 { 2 => { CHECK }, _ => {} }", "#[cfg(any())]\nCHECK", "#[cfg(any())] { CHECK }", "#[cfg(not(test))] { CHECK }", "if x > 0 { return; CHECK }", "if !true { CHECK }", "loop { break; CHECK }",
			"async { CHECK };", "let _f = async { CHECK };", "for _ in &[0i32; 0] { CHECK }", "thread::spawn(move || { CHECK });", "let check = move || { CHECK };\ndrop(check);",
		},
		live: []string{
			"let check = || { CHECK };\ncheck();", "fn check() { CHECK }\ncheck();", "let h = thread::spawn(move || { CHECK });\nh.join().unwrap();", "for _ in 0..1 { CHECK }", "for _ in [1, 2] { CHECK }", "v.iter().for_each(|y| { CHECK });", "#[cfg(test)]\nCHECK", "rt.block_on(async { CHECK });", "let r = (|| { CHECK })();", "unsafe { CHECK }", "async { CHECK }.await;", "block_on(async move { CHECK });", "let fut = async { CHECK };\nrt.block_on(fut);",
		},
	}.run(t)
	around{
		path: "tests/a_test.cpp", frame: "TEST(A, B) {\n  int x = f();\nBODY\n  g(x);\n}\n", check: "EXPECT_EQ(x, 1);",
		dead: []string{
			"if (0) { CHECK }", "if (false) CHECK", "while (0) { CHECK }", "for (;0;) { CHECK }", "for (int i = 0; i < 0; ++i) { CHECK }", "for (auto y : std::vector<int>{}) { CHECK }", "auto check = [&] { CHECK };", "auto check = [&]() { CHECK };", "struct Inner { void check() { CHECK } };", "if (x) { return; CHECK }",
			"\n#ifdef NEVER\nCHECK\n#endif\n", "\n#if (0)\nCHECK\n#endif\n", "\n#if 1\n#else\nCHECK\n#endif\n", "auto check = [&]() { CHECK };\n(void)check;", "std::vector<int> v;\nfor (auto y : v) { CHECK }",
		},
		live: []string{
			"auto check = [&] { CHECK };\ncheck();", "[&] { CHECK }();", "std::thread th([&] { CHECK });\nth.join();", "for (auto y : std::vector<int>{1}) { CHECK }", "do { CHECK } while (0);", "struct Inner { void check() { CHECK } };\nInner().check();", "\n#if 1\nCHECK\n#endif\n", "{ CHECK }", "std::vector<int> v;\nv.push_back(1);\nfor (auto y : v) { CHECK }",
		},
	}.run(t)
	around{
		path: "tests/ATest.php", frame: "<?php\nclass ATest extends TestCase {\n  public function testA() {\n    $x = f();\nBODY\n    g($x);\n  }\n}\n", check: "$this->assertSame(1, $x);",
		dead: []string{
			"if (false) { CHECK }", "if (0): CHECK endif;", "while (false) { CHECK }", "for (;false;) { CHECK }", "foreach ([] as $y) { CHECK }", "$c = function () use ($x) { CHECK };", "$c = function () use ($x): void { CHECK };", "if ($x) { return; CHECK }", "false && CHECK", "$cases = [];\nforeach ($cases as $c) { CHECK }", "$c = fn() => $this->assertSame(1, $x);", "function inner($x) { CHECK }",
		},
		live: []string{
			"$c = function () use ($x) { CHECK };\n$c();", "foreach ([1] as $y) { CHECK }", "$this->run(function () use ($x) { CHECK });", "array_map(function ($y) use ($x) { CHECK }, [1]);",
		},
	}.run(t)
	cpp := "TEST(A, B) {\n  EXPECT_EQ(f(), 1);\n  EXPECT_EQ(g(), 2);\n}\n"
	run(t, []example{
		{"none is built", "tests/a_test.cpp", cpp, "TEST(A, B) {\n#if 0 && X\n  EXPECT_EQ(f(), 1);\n  EXPECT_EQ(g(), 2);\n#endif\n}\n", []string{"test_emptied/block"}},
		{"all are comments", "tests/a_test.cpp", "TEST(A, B) {\n  auto x = long_name(f(), g(), h());\n  EXPECT_EQ(x, 1);\n}\n", "TEST(A, B) {\n  auto x = long_name(f(), g(), h());\n  // EXPECT_EQ(x, 1);\n}\n", []string{"test_emptied/block"}},
		{"some are not built", "tests/a_test.cpp", cpp, strings.Replace(cpp, "  EXPECT_EQ(g(), 2);", "#ifdef NEVER\n  EXPECT_EQ(g(), 2);\n#endif", 1), []string{"assertion_removed/warn"}},
		{"some are not always built", "tests/a_test.cpp", cpp, strings.Replace(cpp, "  EXPECT_EQ(g(), 2);", "#ifdef HAVE_G\n  EXPECT_EQ(g(), 2);\n#endif", 1), []string{"assertion_loosened/warn"}},
		{"a test that is not built", "tests/a_test.cpp", cpp, "#ifdef NEVER\n" + cpp + "#endif\n", []string{"test_skipped/block"}},
		{"a test that is not always built", "tests/a_test.cpp", cpp, "#ifdef HAVE_G\n" + cpp + "#endif\n", []string{"test_skipped/warn"}},
		{"a test of the other branch", "tests/a_test.cpp", cpp, "#if 0\n#else\n" + cpp + "#endif\n", nil},
	})
	rs := "#[test]\nfn a() {\n    assert_eq!(f(), 1);\n}\n"
	run(t, []example{
		{"a build without it", "tests/a.rs", rs, "#[cfg(not(test))]\n" + rs, []string{"test_skipped/block"}},
		{"a build without any", "tests/a.rs", rs, "#[cfg(all(test, any()))]\n" + rs, []string{"test_skipped/block"}},
		{"a build of tests", "tests/a.rs", rs, "#[cfg(test)]\n" + rs, nil},
	})
}

func TestDeadRuby(t *testing.T) {
	around{
		path: "test/a_test.rb", frame: "class ATest < Minitest::Test\n  def test_a\n    x = f\nBODY\n    g(x)\n  end\nend\n", check: "assert_equal 1, x",
		dead: []string{
			"    if false\n      CHECK\n    end", "    unless true\n      CHECK\n    end", "    CHECK if false", "    CHECK unless true", "    while false\n      CHECK\n    end", "    [].each do |y|\n      CHECK\n    end", "    0.times { CHECK }", "    false && CHECK", "    false and CHECK", "    if true\n    else\n      CHECK\n    end", "    case 1\n    when 2\n      CHECK\n    end",
			"    check = -> { CHECK }", "    check = lambda do\n      CHECK\n    end", "    check = proc { CHECK }", "    def inner\n      CHECK\n    end", "    cases = []\n    cases.each do |c|\n      CHECK\n    end", "    [1].each do |y|\n      next\n      CHECK\n    end", "    (1..0).each { CHECK }", "    Thread.new { CHECK }",
		},
		live: []string{
			"    [1].each do |y|\n      CHECK\n    end", "    1.times { CHECK }", "    (0..1).each { CHECK }", "    Thread.new { CHECK }.join", "    th = Thread.new { CHECK }\n    th.join", "    check = -> { CHECK }\n    check.call", "    check = lambda do\n      CHECK\n    end\n    run(&check)", "    run { CHECK }", "    def inner\n      CHECK\n    end\n    inner", "    begin\n      CHECK\n    end", "    cases = []\n    cases << 1\n    cases.each do |c|\n      CHECK\n    end",
		},
	}.run(t)
	old := "class ATest < Minitest::Test\n  def test_a\n    assert_equal 1, f\n  end\nend\n"
	run(t, []example{
		{"after the end", "test/a_test.rb", old, "__END__\n" + old, []string{"test_deleted/block"}},
		{"in a comment", "test/a_test.rb", old, "=begin\n" + old + "=end\n", []string{"test_deleted/block"}},
		{"a test in dead code", "test/a_test.rb", old, strings.NewReplacer("  def", "  if false\n  def", "  end\nend", "  end\n  end\nend").Replace(old), []string{"test_skipped/block"}},
	})
	php := "<?php\nclass ATest extends TestCase {\n  public function testA() {\n    $this->assertSame(1, f());\n  }\n}\n"
	run(t, []example{
		{"after the end of a program", "tests/ATest.php", php, strings.Replace(php, "<?php\n", "<?php\n__halt_compiler();\n", 1), []string{"test_deleted/block"}},
		{"a class below a condition", "tests/ATest.php", php, strings.Replace(php, "class", "if (false) {\nclass", 1) + "}\n", []string{"test_deleted/block"}},
	})
	py := "def test_a():\n    assert f() == 1\n"
	run(t, []example{
		{"a test in dead code", "test_a.py", py, "if False:\n    def test_a():\n        assert f() == 1\n", []string{"test_skipped/block"}},
		{"a coroutine", "test_a.py", py, "async " + py, []string{"assertion_loosened/warn"}},
		{"a coroutine that awaits", "test_a.py", py, "async def test_a():\n    await g()\n    assert f() == 1\n", nil},
	})
}
