package tamper

import (
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// Words of checks by how much they demand; each list is between blanks.
const (
	identity = " === strictEqual strictSame strictEquals deepStrictEqual toStrictEqual assertSame assertIdentical AreSame assert_same isSameAs isSameInstanceAs EXPECT_IDENTICAL toBeIdenticalTo BeSameAs "
	equality = " == Equal EqualValues Exactly EqualError ErrorIs JSONEq YAMLEq ElementsMatch DeepEqual Diff Same toBe toEqual deepEqual equal equals eql same looseEqual deepLooseEqual equivalent toThrowErrorMatchingInlineSnapshot toMatchSnapshot toMatchInlineSnapshot " +
		" assertEqual assertEquals assertIs assertListEqual assertDictEqual assertSetEqual assertTupleEqual assertCountEqual assertSequenceEqual assertMultiLineEqual assert_called_once_with assert_called_with assert_has_calls toHaveBeenCalledWith toHaveBeenNthCalledWith toHaveLength Len calledWith " +
		" assertArrayEquals assertIterableEquals assertLinesMatch isEqualTo containsExactly containsExactlyInAnyOrder containsExactlyElementsOf containsExactlyInOrder hasSize hasToString isEqualByComparingTo returns hasMessage equalTo contentEquals " +
		" AreEqual Be BeEquivalentTo BeEqualTo EqualTo ShouldBe ShouldEqual SequenceEqual EquivalentTo HaveCount ContainSingle Single " +
		" assert_eq assert_matches_snapshot assert_snapshot assert_yaml_snapshot assert_json_snapshot assert_debug_snapshot assert_equal must_equal eq contain_exactly match_array assert_response assert_redirected_to have_received assert_dom_equal " +
		" assertEqualsCanonicalizing assertJsonStringEqualsJsonString assertXmlStringEqualsXmlString assertCount assertEqualsWithDelta assertStringEqualsFile assertDatabaseHas assertExactJson toHaveCount " +
		" EXPECT_EQ ASSERT_EQ EXPECT_STREQ ASSERT_STREQ EXPECT_STRCASEEQ REQUIRE_EQ CHECK_EQ BOOST_CHECK_EQUAL BOOST_REQUIRE_EQUAL BOOST_TEST_EQ CU_ASSERT_EQUAL CU_ASSERT_STRING_EQUAL assert_int_equal assert_string_equal assert_ptr_equal assert_true_eq ck_assert_int_eq ck_assert_str_eq ck_assert_uint_eq ck_assert_ptr_eq g_assert_cmpint g_assert_cmpstr strcmp memcmp EXPECT_DOUBLE_EQ ASSERT_DOUBLE_EQ EXPECT_FLOAT_EQ ASSERT_FLOAT_EQ Equals "
	pattern2 = " toContain toContainEqual toMatch toMatchObject toBeCloseTo toHaveProperty toBeInstanceOf Contains Subset Regexp InDelta InEpsilon WithinDuration ErrorContains ErrorAs HasPrefix HasSuffix MatchString " +
		" assertIn assertAlmostEqual assertAlmostEquals assertRegex assertRaisesRegex assertDictContainsSubset assertIsInstance approx in match include includes toHaveBeenCalledTimes " +
		" contains startsWith endsWith isInstanceOf assertInstanceOf isCloseTo containsString hasItem hasMessageContaining matches assertContains assertStringContainsString assertMatchesRegularExpression assertArrayHasKey assertRegExp " +
		" StartsWith EndsWith Matches InRange IsType IsInstanceOf Contain Match StartWith BeApproximately BeInRange BeOfType Contains ShouldContain " +
		" assert_matches matches starts_with ends_with start_with end_with be_within be_a be_an be_kind_of be_an_instance_of assert_match assert_includes assert_kind_of assert_instance_of assert_in_delta must_match must_include have_key assert_relative_eq assert_abs_diff_eq " +
		" EXPECT_NEAR ASSERT_NEAR EXPECT_THAT ASSERT_THAT HasSubstr WithinAbs WithinRel Approx BOOST_CHECK_CLOSE TEST_ASSERT_FLOAT_WITHIN TEST_ASSERT_INT_WITHIN strstr strncmp "
)

// grades and thrower are the lists as sets; nothing is ever put into them.
var (
	grades  = gradesOf(pattern2, equality, identity)
	thrower = gradesOf(throwers)
)

// gradesOf gives the words of the first list 2, those of the next ones more.
func gradesOf(lists ...string) map[string]int {
	out := map[string]int{}
	for i, l := range lists {
		for _, w := range strings.Fields(l) {
			out[w] = i + 2
		}
	}
	return out
}

// gradeOf is the grade of one word, 0 for a word of no check.
func gradeOf(word string) int {
	if strings.HasPrefix(word, "TEST_ASSERT_EQUAL") {
		return 3
	}
	return grades[word]
}

// strengthOf grades the words of a check: the strongest that it names.
func strengthOf(toks []token) int {
	if s := throwStrength(toks); s > 0 {
		return s
	}
	s := 1
	for i, t := range toks {
		if t.Kind != syntax.Word && t.Kind != syntax.Punct {
			continue
		}
		if t.Text == "is" {
			if (i == 0 || toks[i-1].Text == ".") || i+1 < len(toks) && toks[i+1].Text != "not" {
				s = max(s, 3)
			}
			continue
		}
		g := gradeOf(t.Text)
		if g == 0 {
			g = gradeOf(strings.TrimSuffix(t.Text, "f"))
		}
		if g >= 3 && negated(toks, i) {
			g = 1
		}
		s = max(s, g)
	}
	return s
}

// negated reports a word that is turned around: not.toBe, !x.equals(y), not_to eq.
func negated(toks []token, i int) bool {
	if i == 0 {
		return false
	}
	switch before := toks[i-1]; {
	case negations[before.Text], before.Text == "not_to", before.Text == "to_not", before.Text == "should_not":
		return true
	case before.Text == "." && i > 1:
		return negations[toks[i-2].Text]
	}
	return false
}

// broad are the exceptions that say nothing about what went wrong.
const broad = " Exception BaseException Throwable Error StandardError RuntimeException exception AssertionError Object "

// throwers are the words of checks that something is thrown.
const throwers = " assertRaises assertRaisesRegex raises assertThrows assertThrowsExactly assertThatThrownBy assertThatExceptionOfType isThrownBy expectThrows Throws ThrowsAsync ThrowsAny ThrowsAnyAsync ThrowsException ThrowsExceptionAsync ThrowsExactly Throw ThrowAsync ShouldThrow toThrow toThrowError throws rejects throwsAsync " +
	" raise_error assert_raises assert_raise must_raise expectException expectExceptionMessage expectExceptionObject expectExceptionCode throw toThrowException EXPECT_THROW ASSERT_THROW EXPECT_ANY_THROW ASSERT_ANY_THROW REQUIRE_THROWS REQUIRE_THROWS_AS REQUIRE_THROWS_WITH REQUIRE_THROWS_MATCHES CHECK_THROWS CHECK_THROWS_AS CHECK_THROWS_WITH CHECK_THROWS_MATCHES BOOST_CHECK_THROW BOOST_REQUIRE_THROW should_panic ExpectedException expected expectedException "

// throwStrength grades a check that something is thrown: 3 with a message or a pattern of it, 2
// for a kind of exception, 1 for any; 0 where it is no such check.
func throwStrength(toks []token) int {
	at := slices.IndexFunc(toks, func(t token) bool { return t.Kind == syntax.Word && thrower[t.Text] > 0 })
	if at < 0 || at > 0 && negated(toks, at) || toks[at].Text == "throws" && at > 0 && toks[at-1].Text != "." {
		return 0
	}
	if toks[at].Text == "expected" && (at == 0 || toks[0].Text != "@" && toks[0].Text != "#" && toks[0].Text != "[") {
		return 0
	}
	s := 1
	depth := toks[at].Depth
	for _, t := range toks[kindFrom(toks, at):] {
		switch {
		case t.Kind == syntax.Text && (t.Depth == depth+1 || t.Depth == depth), t.Text == "match" && t.Depth == depth+1:
			s = 3
		case t.Kind == syntax.Word && named(t.Text):
			s = max(s, 2)
		}
		if t.Text == "->" || t.Text == "=>" || t.Text == "{" || t.Text == ")" && t.Depth <= depth {
			break
		}
	}
	if syntax.Has(toks[at:], "WithMessage", "with_message", "hasMessage", "hasMessageContaining", "WithParameterName") {
		return 3
	}
	return s
}

// kindFrom is where the kind of exception is named: after the last comma of checks that have the
// code first, else at the beginning.
func kindFrom(toks []token, at int) int {
	w := toks[at].Text
	if w != "throws" && w != "rejects" && w != "throwsAsync" && strings.ToUpper(w) != w {
		return at
	}
	for i := len(toks) - 1; i > at; i-- {
		if toks[i].Text == "," && toks[i].Depth == toks[at].Depth+1 {
			return i
		}
	}
	return len(toks)
}

// named reports the name of a particular exception.
func named(w string) bool {
	if strings.Contains(broad, " "+w+" ") || thrower[w] > 0 {
		return false
	}
	return strings.HasSuffix(w, "Error") || strings.HasSuffix(w, "Exception") || strings.HasSuffix(w, "_error") || strings.HasSuffix(w, "_argument") || strings.HasSuffix(w, "out_of_range") || strings.HasSuffix(w, "Failure") ||
		w != "" && w[0] >= 'A' && w[0] <= 'Z' && strings.ToUpper(w) != w && !strings.HasPrefix(w, "Assert") && !strings.HasPrefix(w, "Throw") && w != "Should" && w != "Test" && w != "Invoking"
}

// tolerances are the words of checks whose last number is how far off a value may be.
const tolerances = " approx InDelta InEpsilon WithinDuration assertAlmostEqual assertAlmostEquals toBeCloseTo closeTo isCloseTo offset within be_within assert_in_delta assert_in_epsilon EXPECT_NEAR ASSERT_NEAR BeApproximately WithinAbs WithinRel assertEqualsWithDelta assertEquals AreEqual Equal abs fabs Abs assert_relative_eq assert_abs_diff_eq BOOST_CHECK_CLOSE TEST_ASSERT_FLOAT_WITHIN TEST_ASSERT_DOUBLE_WITHIN TEST_ASSERT_INT_WITHIN isclose allclose assert_allclose "

// widened reports whether two checks of one skeleton differ in how far off a value may be alone,
// and it may be further off than before.
func widened(old, now []token) bool {
	if len(old) != len(now) || !slices.ContainsFunc(old, func(t token) bool { return t.Kind == syntax.Word && strings.Contains(tolerances, " "+t.Text+" ") }) {
		return false
	}
	at, digits := -1, false
	for i := range old {
		if old[i].Text == now[i].Text {
			continue
		}
		if at >= 0 || old[i].Kind != syntax.Number || now[i].Kind != syntax.Number {
			return false
		}
		at = i
	}
	if at < 0 {
		return false
	}
	before := ""
	if at > 1 && (old[at-1].Text == "=" || old[at-1].Text == ":") {
		before = old[at-2].Text
	}
	// A number of places: fewer of them are a wider tolerance.
	digits = before == "places" || before == "decimal" || syntax.Has(old, "toBeCloseTo", "assertAlmostEqual", "assertAlmostEquals") && before != "delta"
	first := syntax.Has(old, "be_within", "TEST_ASSERT_FLOAT_WITHIN", "TEST_ASSERT_DOUBLE_WITHIN", "TEST_ASSERT_INT_WITHIN")
	numbers := 0
	for _, t := range old[at+1:] {
		if t.Kind == syntax.Number {
			numbers++
		}
	}
	if numbers > 0 && before == "" && !first {
		return false
	}
	a, errA := strconv.ParseFloat(strings.Trim(old[at].Text, "fFdDlL_"), 64)
	b, errB := strconv.ParseFloat(strings.Trim(now[at].Text, "fFdDlL_"), 64)
	if errA != nil || errB != nil || syntax.Has(old, "assertEquals", "AreEqual", "Equal") && numberArgs(old) < 2 {
		return false
	}
	if digits {
		return b < a
	}
	return b > a
}

// numberArgs counts the numbers of a check; an equality with a tolerance has at least two.
func numberArgs(toks []token) int {
	n := 0
	for _, t := range toks {
		if t.Kind == syntax.Number {
			n++
		}
	}
	return n
}
