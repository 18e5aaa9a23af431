package tamper

import (
	"regexp"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// pattern is something that code says, as space-joined tokens.
type pattern struct {
	re       *regexp.Regexp
	severity string
	what     string
}

var (
	pyHooks = []pattern{
		{regexp.MustCompile(`^def (pytest_runtest_makereport|pytest_runtest_call|pytest_pyfunc_call|pytest_runtest_protocol|pytest_sessionfinish|pytest_report_teststatus|pytest_runtest_logreport|pytest_exception_interact|pytest_assertrepr_compare|pytest_runtest_setup) `), "block", "a hook that can rewrite outcomes"},
		{regexp.MustCompile(`^def (pytest_collection_modifyitems|pytest_ignore_collect|pytest_itemcollected|pytest_pycollect_makeitem|pytest_generate_tests|pytest_deselected|pytest_configure|pytest_load_initial_conftests|pytest_cmdline_main|pytest_unconfigure|pytest_collect_file) `), "warn", "a hook that decides what runs"},
		{regexp.MustCompile(`\bos \. _exit \(`), "block", "the process ends from inside a test"},
		{regexp.MustCompile(`\bsys \. exit \(|^(exit|quit) \(`), "warn", "the process may end from inside a test"},
		{regexp.MustCompile(`\b(exitstatus|outcome) = |\. (outcome|wasxfail|longrepr) = |force_result`), "block", "an outcome is assigned"},
		{regexp.MustCompile(`^pytest_plugins\b`), "warn", "a plugin is loaded"},
	}
	goHooks = []pattern{
		{regexp.MustCompile(`^func TestMain \(`), "warn", "TestMain is new"},
		{regexp.MustCompile(`\bos \. Exit \( 0 \)`), "block", "the process ends with success from inside a test"},
		{regexp.MustCompile(`\bsyscall \. Exit \(|\bos \. Exit \(|runtime \. Goexit \(`), "warn", "the process or a test may end early"},
		{regexp.MustCompile(`\bflag \. Set \( "test\.`), "block", "the test runner's flags are set by the test"},
	}
	jsHooks = []pattern{
		{regexp.MustCompile(`\bprocess \. (exit|reallyExit|abort|kill) \(`), "block", "the process ends from inside a test"},
		{regexp.MustCompile(`\bprocess \. exitCode = `), "block", "the exit code is set by a test"},
		{regexp.MustCompile(`\b(process \. on \( ["'](exit|uncaughtException|unhandledRejection)["'])`), "warn", "errors or the exit are taken over"},
		{regexp.MustCompile(`\b(globalThis|global) \. (expect|test|it|describe|assert) = |\bexpect \. extend \(|\bassert \. \w+ = |\bjest \. (retryTimes|setTimeout) \(`), "warn", "the test framework is changed"},
	}
	// otherHooks are the same for languages whose tests are compiled or run by a runner of their own.
	otherHooks = map[syntax.Lang][]pattern{
		syntax.Java: {
			{regexp.MustCompile(`\bSystem \. exit \(|\. halt \(`), "block", "the process ends from inside a test"},
			{regexp.MustCompile(`\b(TestExecutionExceptionHandler|InvocationInterceptor|ExecutionCondition|LifecycleMethodExecutionExceptionHandler)\b.*\{`), "warn", "an extension that can rewrite outcomes"},
		},
		syntax.CSharp: {
			{regexp.MustCompile(`\bEnvironment \. (Exit|FailFast) \(|\. Kill \( \)`), "block", "the process ends from inside a test"},
			{regexp.MustCompile(`\bENVIRONMENT_EXITCODE|\bExitCode = `), "block", "the exit code is set by a test"},
		},
		syntax.Rust: {
			{regexp.MustCompile(`\bprocess :: (exit|abort) \(`), "block", "the process ends from inside a test"},
			{regexp.MustCompile(`\bpanic :: set_hook \(`), "warn", "what a failure does is changed"},
			{regexp.MustCompile(`\bmacro_rules ! (assert|assert_eq|assert_ne) \b`), "block", "an assertion is defined anew"},
		},
		syntax.Ruby: {
			{regexp.MustCompile(`(^|[^.:] )(exit|exit!|abort)( \( (0|true)?| (0|true)\b|$)|\bKernel (\.|::) (exit|exit!|abort)|\bProcess \. exit`), "block", "the process ends from inside a test"},
			{regexp.MustCompile(`^at_exit\b`), "warn", "the exit is taken over"},
			{regexp.MustCompile(`^def (assert|refute|expect|assert_equal|assert_same|assert_nil|assert_raises|assert_match|assert_includes|assert_empty|refute_equal|refute_nil|flunk)( |$)|^(module|class) (Minitest|RSpec|Test :: Unit)\b`), "warn", "the test framework is changed"},
			{regexp.MustCompile(`\b(filter_run_excluding|exclusion_filter|filter_run_when_matching|filter_run|inclusion_filter)\b`), "warn", "a filter decides what runs"},
		},
		syntax.PHP: {
			{regexp.MustCompile(`(^|[;{] )(exit|die)( \( (0 )?\))? ;|(^|[;{] )(exit|die) \(`), "block", "the process ends from inside a test"},
			{regexp.MustCompile(`\bregister_shutdown_function \(|\bset_error_handler \(`), "warn", "errors or the exit are taken over"},
		},
		syntax.C: {
			{regexp.MustCompile(`(^|[;{)] |:: )(_exit|_Exit|quick_exit|exit) \(`), "block", "the process ends from inside a test"},
			{regexp.MustCompile(`^# (define|undef) (assert|EXPECT_|ASSERT_|REQUIRE|CHECK|TEST_ASSERT|BOOST_CHECK)`), "block", "an assertion is defined anew"},
			{regexp.MustCompile(`\bGTEST_FLAG(_SET)? \( (::testing::)?filter\b`), "block", "the test runner's filter is set by a test"},
			{regexp.MustCompile(`\b(signal|sigaction) \( SIGABRT\b|\bset_terminate \(`), "warn", "what a failure does is changed"},
		},
	}
	detectors = []pattern{
		{regexp.MustCompile(`\b(argv|argv0|__FILE__|PROGRAM_NAME|\$0)\b.*["'/](jest|mocha|vitest|pytest|py\.test|rspec|minitest|phpunit|pest|--test|\.bin/jest)\b`), "block", "source looks for the test runner's command line"},
		{regexp.MustCompile(`\b(inspect \. (stack|currentframe|getouterframes) \(|sys \. _getframe \(|traceback \. (extract_stack|format_stack) \(|runtime \. Callers? \(|debug \. Stack \(|getStackTrace \(|StackWalker\b|new StackTrace \(|StackFrame \(|debug_backtrace \(|debug_print_backtrace \(|caller_locations\b|\bcaller\b|Error \( \) \. stack|\. stack \b).*["'` + "`" + `/][^"'` + "`" + `]*([Tt]est|[Ss]pec|junit|jest|mocha|xunit|nunit)`), "block", "source looks for a test among its callers"},
		{regexp.MustCompile(`\bnpm_lifecycle_event\b|\bimport \. meta \. vitest\b`), "warn", "source asks whether it is being tested"},
		{regexp.MustCompile(`["'][^"']*(org\.junit|org\.testng|surefire\.|org\.gradle\.test)[^"']*["']`), "block", "source looks for the test framework"},
		{regexp.MustCompile(`^import (static )?(org \. junit|org \. testng|org \. mockito)\b`), "warn", "source reaches into the test framework"},
		{regexp.MustCompile(`\bcfg ! \( (not \( )?test\b`), "block", "source asks whether it is being tested"},
		{regexp.MustCompile(`^# \[ cfg \( not \( test \)`), "warn", "source behaves differently under tests"},
		{regexp.MustCompile(`["'](RUST_TEST_THREADS|NEXTEST|NEXTEST_RUN_ID|NEXTEST_EXECUTION_MODE|GTEST_\w+|CTEST_\w+|TEST_TARGET|TEST_SRCDIR|BAZEL_TEST|XUNIT_\w+|VSTEST_\w+|PHPUNIT_\w+|__PHPUNIT_\w+|RSPEC_\w+|MINITEST_\w+)["']|\b(__PHPUNIT_\w+|PHPUNIT_COMPOSER_INSTALL)\b`), "block", "source reads a variable of the test runner"},
		{regexp.MustCompile(`\bdefined\? \(? ?(RSpec|Minitest|Test :: Unit|ActiveSupport :: TestCase)\b|const_defined\? \(? ?:? ?["']?(RSpec|Minitest)\b`), "block", "source looks for the test framework"},
		{regexp.MustCompile(`\bclass_exists \( ["']?\\?\\?(PHPUnit|Pest)\b|\b(PHPUnit|Pest) \\.*:: class\b`), "block", "source looks for the test framework"},
		{regexp.MustCompile(`["'@$]*["'](xunit|nunit|mstest|testhost|Microsoft\.VisualStudio\.TestPlatform|Microsoft\.TestPlatform)[\w.]*["']`), "block", "source looks for the test framework"},
		{regexp.MustCompile(`^using (static )?(Xunit|NUnit|Microsoft \. VisualStudio \. TestTools)\b`), "warn", "source reaches into the test framework"},
		{regexp.MustCompile(`\bRails \. env \. test\?|(RAILS_ENV|RACK_ENV|APP_ENV).*==+ ["'](test|testing)["']|\brunningUnitTests \(|^# if(def)? (UNIT_TEST|UNITTEST|TESTING|GTEST|RUNNING_TESTS)\b`), "warn", "source behaves differently under tests"},
		{regexp.MustCompile(`\btesting \. Testing \(`), "block", "source asks whether it is being tested"},
		{regexp.MustCompile(`\bflag \. Lookup \( ["` + "`" + `]test\.`), "block", "source asks whether it is being tested"},
		{regexp.MustCompile(`["'` + "`" + `]-test\.[\w.]*["'` + "`" + `]|\.test["'` + "`" + `] \).*os \. Args|os \. Args.*\.test["'` + "`" + `]`), "block", "source looks for the test binary's name or flags"},
		{regexp.MustCompile(`PYTEST_CURRENT_TEST|JEST_WORKER_ID|VITEST_WORKER_ID|VITEST_POOL_ID|NODE_TEST_CONTEXT|MOCHA_COLORS|PYTEST_VERSION`), "block", "source reads a variable of the test runner"},
		{regexp.MustCompile(`["'](pytest|unittest|_pytest)["'] in sys \. modules|sys \. modules \. get \( ["'](pytest|unittest)|sys \. modules \[ ["'](pytest|unittest)`), "block", "source looks for the test framework"},
		{regexp.MustCompile(`["'](pytest|unittest)["'] in sys \. argv`), "block", "source looks for the test framework"},
		{regexp.MustCompile(`^(import|from) (_pytest|pluggy)\b|^import (pytest|unittest)( ,| as |$)|^from (pytest|unittest( \. (case|suite|result|runner|loader|main))?) import |^import unittest \. (case|suite|result|runner|loader|main)\b`), "block", "source reaches into the test framework"},
		{regexp.MustCompile(`\b(require \( |from |import )["'](node:test|@jest/globals|vitest|mocha|expect)["']`), "block", "source reaches into the test framework"},
		{regexp.MustCompile(`\bassert( \. strict)? \. \w+ = |\b(globalThis|global) \. (expect|test|it|describe|assert) = `), "block", "source changes what assertions do"},
		{regexp.MustCompile(`\bNODE_ENV\b.*(={2,3}|!==?) ["']test["']|["']test["'] (={2,3}|!==?) .*\bNODE_ENV\b`), "warn", "source behaves differently under tests"},
		{regexp.MustCompile(`typeof (jest|describe|it|vi|mocha) \b`), "block", "source looks for the test framework"},
	}
)
