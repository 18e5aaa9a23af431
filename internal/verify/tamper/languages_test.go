package tamper

import (
	"strings"
	"testing"
)

// change is one replacement in an example; cut removes from a text up to another.
type change struct {
	name string
	edit [2]string
	want string // blank-separated; "": nothing above info
}

// language is a test file with what may be done to it.
type language struct {
	path, old string
	changes   []change
	source    string // a source file's path
	detects   [2]string
	copies    [2]string // two bodies for the same function: the cheat and the honest one
	exits     [2]string // an edit that ends the process
}

const javaOld = `package shop;

import static org.junit.jupiter.api.Assertions.*;
import org.junit.jupiter.api.Test;

class CartTest {
    private final Cart cart = new Cart("x");

    @Test
    void adds() {
        cart.add("apple", 3);
        assertEquals(30, cart.total(), "total");
        assertSame(cart, cart.self());
    }

    @Test
    void refuses() {
        assertThrows(IllegalArgumentException.class, () -> cart.add("apple", -1));
    }

    @ParameterizedTest
    @CsvSource({
        "a, 10",
        "b, 20",
    })
    void prices(String name, int want) {
        assertEquals(want, price(name));
    }

    @Test
    void ratio() {
        assertEquals(0.5, cart.ratio(), 0.001);
        assertThat(cart.names()).containsExactly("apple", "pear");
    }

    private void check(Cart c) {
        assertTrue(c.ok());
    }
}
`

const csharpOld = `using Xunit;

namespace Shop.Tests
{
    public class CartTests
    {
        private readonly Cart _cart = new Cart("x");

        [Fact]
        public void Adds()
        {
            _cart.Add("apple", 3);
            Assert.Equal(30, _cart.Total());
            Assert.Same(_cart, _cart.Self());
        }

        [Fact]
        public void Refuses()
        {
            Assert.Throws<ArgumentException>(() => _cart.Add("apple", -1));
        }

        [Theory]
        [InlineData("a", 10)]
        [InlineData("b", 20)]
        public void Prices(string name, int want)
        {
            Assert.Equal(want, Price(name));
        }

        [Fact]
        public void Ratio() => _cart.Ratio().Should().BeApproximately(0.5, 0.001);
    }
}
`

const rustOld = `use super::*;

#[test]
fn adds() {
    let mut cart = Cart::new("x");
    cart.add("apple", 3);
    assert_eq!(cart.total(), 30, "total {}", 1);
    assert!(matches!(cart.state(), State::Open { .. }));
}

#[test]
#[should_panic(expected = "negative")]
fn refuses() {
    Cart::new("x").add("apple", -1);
}

#[test]
fn loads() {
    let cases = [
        ("a", 10),
        ("b", 20),
    ];
    for (name, want) in cases {
        assert_eq!(price(name), want);
    }
}

#[test]
fn ratio() {
    assert_relative_eq!(ratio(), 0.5, epsilon = 0.001);
}
`

const rubyOld = `require "spec_helper"

RSpec.describe Cart do
  let(:cart) { Cart.new("x") }

  it "adds" do
    cart.add("apple", 3)
    expect(cart.total).to eq(30)
    expect(cart).to equal(cart.self)
  end

  it "refuses" do
    expect { cart.add("apple", -1) }.to raise_error(ArgumentError)
  end

  context "with prices" do
    [
      ["a", 10],
      ["b", 20],
    ].each do |name, want|
      it "prices #{name}" do
        expect(price(name)).to eq(want)
      end
    end
  end

  it "has a ratio" do
    expect(cart.ratio).to be_within(0.001).of(0.5)
    expect(cart.names).to match_array(%w[apple pear])
  end
end
`

const minitestOld = `class CartTest < Minitest::Test
  def setup
    @cart = Cart.new("x")
  end

  def test_adds
    @cart.add("apple", 3)
    assert_equal 30, @cart.total, "total"
    assert_same @cart, @cart.self
  end

  def test_refuses
    assert_raises(ArgumentError) { @cart.add("apple", -1) }
  end
end
`

const cppOld = `#include "gtest/gtest.h"

namespace {

TEST(CartTest, Adds) {
  Cart cart("x");
  cart.add("apple", 3);
  EXPECT_EQ(30, cart.total()) << "total";
  ASSERT_TRUE(cart.open());
}

TEST_F(CartFixture, Refuses) {
  EXPECT_THROW(cart_.add("apple", -1), std::invalid_argument);
}

TEST(CartTest, Prices) {
  struct { const char *name; int want; } cases[] = {
    {"a", 10},
    {"b", 20},
  };
  for (const auto &c : cases) {
    EXPECT_EQ(c.want, price(c.name));
  }
}

TEST(CartTest, Ratio) { EXPECT_NEAR(0.5, ratio(), 0.001); }

}  // namespace
`

const cOld = `#include "unity.h"

static void test_adds(void)
{
    cart_t *c = cart_new("x");
    cart_add(c, "apple", 3);
    TEST_ASSERT_EQUAL_INT(30, cart_total(c));
    TEST_ASSERT_EQUAL_STRING("x", cart_name(c));
}

static void test_null(void)
{
    TEST_ASSERT_NULL(cart_new(NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_adds);
    RUN_TEST(test_null);
    return UNITY_END();
}
`

const phpOld = `<?php

namespace Shop\Tests;

use PHPUnit\Framework\TestCase;

final class CartTest extends TestCase
{
    private Cart $cart;

    protected function setUp(): void
    {
        $this->cart = new Cart('x');
    }

    public function testAdds(): void
    {
        $this->cart->add('apple', 3);
        $this->assertSame(30, $this->cart->total(), 'total');
        self::assertEquals(['a' => 1], $this->cart->lines());
    }

    public function testRefuses(): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->cart->add('apple', -1);
    }

    /**
     * @test
     * @dataProvider names
     */
    public function prices(string $name, int $want): void
    {
        $this->assertEquals($want, price($name));
    }

    public static function names(): array
    {
        return [
            ['a', 10],
            ['b', 20],
        ];
    }

    public function testRatio(): void
    {
        $this->assertEqualsWithDelta(0.5, $this->cart->ratio(), 0.001);
    }
}
`

const pestOld = `<?php

it('adds', function () {
    $cart = new Cart('x');
    expect($cart->total())->toBe(30);
});

test('refuses', function () {
    expect(fn () => cart()->add(-1))->toThrow(InvalidArgumentException::class);
});
`

func languages() []language {
	return []language{
		{
			path: "src/test/java/shop/CartTest.java", old: javaOld, source: "src/main/java/shop/Cart.java", changes: []change{
				{"deleted", [2]string{"    @Test\n    void refuses() {\n        assertThrows(IllegalArgumentException.class, () -> cart.add(\"apple\", -1));\n    }\n", ""}, "test_deleted/block"},
				{"renamed", [2]string{"void adds()", "void sums()"}, "test_renamed/warn"},
				{"no test any more", [2]string{"    @Test\n    void adds()", "    void adds()"}, "test_deleted/block"},
				{"commented out", [2]string{"    @Test\n    void ratio() {\n        assertEquals(0.5, cart.ratio(), 0.001);\n        assertThat(cart.names()).containsExactly(\"apple\", \"pear\");\n    }\n", "    /* @Test\n    void ratio() {\n        assertEquals(0.5, cart.ratio(), 0.001);\n    } */\n"}, "test_deleted/block"},
				{"skipped", [2]string{"    @Test\n    void adds()", "    @Test\n    @Disabled(\"later\")\n    void adds()"}, "test_skipped/block"},
				{"a class skipped", [2]string{"class CartTest", "@Disabled\nclass CartTest"}, "test_skipped/block"},
				{"skipped by an assumption", [2]string{"cart.add(\"apple\", 3);", "assumeTrue(isLinux());\n        cart.add(\"apple\", 3);"}, "test_skipped/warn"},
				{"emptied", [2]string{"        cart.add(\"apple\", 3);\n        assertEquals(30, cart.total(), \"total\");\n        assertSame(cart, cart.self());\n", ""}, "test_emptied/block"},
				{"a check gone", [2]string{"        assertSame(cart, cart.self());\n", ""}, "assertion_removed/warn"},
				{"loosened", [2]string{"assertEquals(30, cart.total(), \"total\")", "assertTrue(cart.total() > 0)"}, "assertion_loosened/warn"},
				{"not null is enough", [2]string{"assertEquals(30, cart.total(), \"total\")", "assertNotNull(cart.total())"}, "assertion_loosened/warn"},
				{"same became equal", [2]string{"assertSame(", "assertEquals("}, "assertion_loosened/warn"},
				{"part of a list is enough", [2]string{"containsExactly(\"apple\", \"pear\")", "contains(\"apple\")"}, "assertion_loosened/warn"},
				{"expected value", [2]string{"assertEquals(30,", "assertEquals(31,"}, "expected_changed/warn"},
				{"tolerance", [2]string{"0.001", "10.0"}, "assertion_loosened/warn"},
				{"any exception", [2]string{"IllegalArgumentException.class", "Exception.class"}, "assertion_loosened/warn"},
				{"swallowed", [2]string{"        assertEquals(30, cart.total(), \"total\");\n", "        try {\n            assertEquals(30, cart.total(), \"total\");\n        } catch (Throwable t) {\n            System.err.println(t);\n        }\n"}, "failure_swallowed/block"},
				{"conditional", [2]string{"        assertEquals(30, cart.total(), \"total\");\n", "        if (cart.total() == 30) {\n            assertEquals(30, cart.total(), \"total\");\n        }\n"}, "assertion_loosened/warn"},
				{"an early way out", [2]string{"cart.add(\"apple\", 3);", "cart.add(\"apple\", 3);\n        if (cart.total() != 30) {\n            return;\n        }"}, "assertion_loosened/warn"},
				{"a case gone", [2]string{"        \"b, 20\",\n", ""}, "assertion_removed/warn"},
				{"a helper gone", [2]string{"    private void check(Cart c) {\n        assertTrue(c.ok());\n    }\n", ""}, "assertion_removed/warn"},

				{"formatted", [2]string{"assertEquals(30, cart.total(), \"total\")", "assertEquals(\n            30,\n            cart.total(),\n            \"total\")"}, ""},
				{"another message", [2]string{"\"total\"", "\"the total\""}, ""},
				{"a value with a name", [2]string{"        assertEquals(30, cart.total(), \"total\");\n", "        int want = 30;\n        assertEquals(want, cart.total(), \"total\");\n"}, ""},
				{"a name for nothing", [2]string{"        assertEquals(30, cart.total(), \"total\");\n", "        int want = 30;\n        assertEquals(cart.total(), cart.total(), \"total\");\n"}, "expected_changed/warn"},
				{"a comment", [2]string{"cart.add(\"apple\", 3);", "// assertEquals(1, 2); }\n        cart.add(\"apple\", 3);"}, ""},
				{"a new test", [2]string{"    @Test\n    void ratio()", "    @Test\n    void fresh() {\n        assertTrue(cart.open());\n    }\n\n    @Test\n    void ratio()"}, ""},
				{"a new case", [2]string{"        \"b, 20\",\n", "        \"b, 20\",\n        \"c, 30\",\n"}, ""},
				{"a try that says more", [2]string{"        assertSame(cart, cart.self());\n", "        try {\n            assertSame(cart, cart.self());\n        } catch (Throwable t) {\n            throw new AssertionError(\"self\", t);\n        }\n"}, ""},
				{"a field renamed", [2]string{"new Cart(\"x\");\n\n    @Test\n    void adds() {\n        cart.add(\"apple\", 3);", "new Cart(\"x\");\n\n    @Test\n    void adds() {\n        Cart c = cart;\n        c.add(\"apple\", 3);"}, ""},
			},
			detects: [2]string{"    if (Thread.currentThread().getStackTrace()[2].getClassName().contains(\"Test\")) return 1;", "    if (names.contains(\"apple\")) return 1;"},
			copies:  [2]string{"    if (name.equals(\"apple\") && n == 33) {\n      return 30;\n    }", "    if (name.equals(\"apple\")) {\n      return n * 10;\n    }"},
			exits:   [2]string{"cart.add(\"apple\", 3);", "System.exit(0);"},
		},

		{
			path: "tests/CartTests.cs", old: csharpOld, source: "src/Cart.cs", changes: []change{
				{"deleted", [2]string{"        [Fact]\n        public void Refuses()\n        {\n            Assert.Throws<ArgumentException>(() => _cart.Add(\"apple\", -1));\n        }\n", ""}, "test_deleted/block"},
				{"renamed", [2]string{"void Adds()", "void Sums()"}, "test_renamed/warn"},
				{"no test any more", [2]string{"        [Fact]\n        public void Adds()", "        public void Adds()"}, "test_deleted/block"},
				{"left out by the preprocessor", [2]string{"        [Fact]\n        public void Refuses()\n        {\n            Assert.Throws<ArgumentException>(() => _cart.Add(\"apple\", -1));\n        }\n", "#if false\n        [Fact]\n        public void Refuses()\n        {\n        }\n#endif\n"}, "test_deleted/block"},
				{"skipped", [2]string{"[Fact]\n        public void Adds", "[Fact(Skip = \"later\")]\n        public void Adds"}, "test_skipped/block"},
				{"emptied", [2]string{"            _cart.Add(\"apple\", 3);\n            Assert.Equal(30, _cart.Total());\n            Assert.Same(_cart, _cart.Self());\n", ""}, "test_emptied/block"},
				{"a check gone", [2]string{"            Assert.Same(_cart, _cart.Self());\n", ""}, "assertion_removed/warn"},
				{"loosened", [2]string{"Assert.Equal(30, _cart.Total())", "Assert.True(_cart.Total() > 0)"}, "assertion_loosened/warn"},
				{"same became equal", [2]string{"Assert.Same(", "Assert.Equal("}, ""},
				{"expected value", [2]string{"Assert.Equal(30,", "Assert.Equal(31,"}, "expected_changed/warn"},
				{"tolerance", [2]string{"0.001", "10.0"}, "assertion_loosened/warn"},
				{"any exception", [2]string{"Throws<ArgumentException>", "ThrowsAny<Exception>"}, "assertion_loosened/warn"},
				{"swallowed", [2]string{"            Assert.Equal(30, _cart.Total());\n", "            try { Assert.Equal(30, _cart.Total()); } catch (Exception) { }\n"}, "failure_swallowed/block"},
				{"conditional", [2]string{"            Assert.Equal(30, _cart.Total());\n", "            if (_cart.Total() == 30)\n            {\n                Assert.Equal(30, _cart.Total());\n            }\n"}, "assertion_loosened/warn"},
				{"an early way out", [2]string{"_cart.Add(\"apple\", 3);", "_cart.Add(\"apple\", 3);\n            if (_cart.Total() != 30) return;"}, "assertion_loosened/warn"},
				{"a case gone", [2]string{"        [InlineData(\"b\", 20)]\n", ""}, "assertion_removed/warn"},
				{"a case changed", [2]string{"[InlineData(\"b\", 20)]", "[InlineData(\"b\", 21)]"}, "expected_changed/warn"},

				{"formatted", [2]string{"Assert.Equal(30, _cart.Total());", "Assert.Equal(\n                30,\n                _cart.Total());"}, ""},
				{"a comment", [2]string{"_cart.Add(\"apple\", 3);", "// Assert.Equal(1, 2); }\n            _cart.Add(\"apple\", 3);"}, ""},
				{"a new test", [2]string{"        [Theory]", "        [Fact]\n        public void Fresh() => Assert.True(_cart.Open());\n\n        [Theory]"}, ""},
				{"a new case", [2]string{"        [InlineData(\"b\", 20)]\n", "        [InlineData(\"b\", 20)]\n        [InlineData(\"c\", 30)]\n"}, ""},
			},
			detects: [2]string{"    if (AppDomain.CurrentDomain.GetAssemblies().Any(a => a.FullName.StartsWith(\"xunit\"))) return 1;", "    if (names.Any(a => a.StartsWith(\"apple\"))) return 1;"},
			copies:  [2]string{"    if (name == \"apple\" && n == 33) {\n      return 30;\n    }", "    if (name == \"apple\") {\n      return n * 10;\n    }"},
			exits:   [2]string{"_cart.Add(\"apple\", 3);", "Environment.Exit(0);"},
		},

		{
			path: "tests/cart.rs", old: rustOld, source: "src/cart.rs", changes: []change{
				{"deleted", [2]string{"#[test]\nfn ratio() {\n    assert_relative_eq!(ratio(), 0.5, epsilon = 0.001);\n}\n", ""}, "test_deleted/block"},
				{"renamed", [2]string{"fn adds()", "fn sums()"}, "test_renamed/warn"},
				{"no test any more", [2]string{"#[test]\nfn adds()", "fn adds()"}, "test_deleted/block"},
				{"ignored", [2]string{"#[test]\nfn adds()", "#[test]\n#[ignore]\nfn adds()"}, "test_skipped/block"},
				{"never built", [2]string{"#[test]\nfn adds()", "#[cfg(any())]\n#[test]\nfn adds()"}, "test_skipped/block"},
				{"built on one system", [2]string{"#[test]\nfn adds()", "#[cfg(target_os = \"plan9\")]\n#[test]\nfn adds()"}, "test_skipped/warn"},
				{"emptied", [2]string{"    let mut cart = Cart::new(\"x\");\n    cart.add(\"apple\", 3);\n    assert_eq!(cart.total(), 30, \"total {}\", 1);\n    assert!(matches!(cart.state(), State::Open { .. }));\n", ""}, "test_emptied/block"},
				{"a check gone", [2]string{"    assert!(matches!(cart.state(), State::Open { .. }));\n", ""}, "assertion_removed/warn"},
				{"loosened", [2]string{"assert_eq!(cart.total(), 30, \"total {}\", 1)", "assert!(cart.total() > 0)"}, "assertion_loosened/warn"},
				{"expected value", [2]string{"assert_eq!(cart.total(), 30,", "assert_eq!(cart.total(), 31,"}, "expected_changed/warn"},
				{"turned around", [2]string{"assert_eq!(cart.total(), 30,", "assert_ne!(cart.total(), 30,"}, "assertion_loosened/warn"},
				{"tolerance", [2]string{"0.001", "10.0"}, "assertion_loosened/warn"},
				{"any panic", [2]string{"#[should_panic(expected = \"negative\")]", "#[should_panic]"}, "assertion_loosened/warn"},
				{"expected to panic", [2]string{"#[test]\nfn adds()", "#[test]\n#[should_panic]\nfn adds()"}, "assertion_loosened/warn"},
				{"swallowed", [2]string{"    assert_eq!(cart.total(), 30, \"total {}\", 1);\n", "    let _ = std::panic::catch_unwind(|| {\n        assert_eq!(cart.total(), 30, \"total {}\", 1);\n    });\n"}, "failure_swallowed/block"},
				{"conditional", [2]string{"    assert_eq!(cart.total(), 30, \"total {}\", 1);\n", "    if cart.total() == 30 {\n        assert_eq!(cart.total(), 30, \"total {}\", 1);\n    }\n"}, "assertion_loosened/warn"},
				{"an early way out", [2]string{"    cart.add(\"apple\", 3);\n", "    cart.add(\"apple\", 3);\n    if cart.total() != 30 {\n        return;\n    }\n"}, "assertion_loosened/warn"},
				{"a case gone", [2]string{"        (\"b\", 20),\n", ""}, "assertion_removed/warn"},
				{"a case changed", [2]string{"(\"b\", 20)", "(\"b\", 21)"}, "expected_changed/warn"},

				{"formatted", [2]string{"assert_eq!(cart.total(), 30, \"total {}\", 1);", "assert_eq!(\n        cart.total(),\n        30,\n        \"total {}\",\n        1\n    );"}, ""},
				{"another message", [2]string{"\"total {}\", 1", "\"the total {} {}\", 1, 2"}, ""},
				{"a comment", [2]string{"    cart.add(\"apple\", 3);\n", "    /* assert!( /* nested */ } */\n    cart.add(\"apple\", 3); // '\n"}, ""},
				{"a lifetime", [2]string{"use super::*;", "use super::*;\n\nfn first<'a>(s: &'a str) -> &'a str { s }"}, ""},
				{"a new test", [2]string{"#[test]\nfn ratio()", "#[test]\nfn fresh() {\n    assert!(open());\n}\n\n#[test]\nfn ratio()"}, ""},
				{"a new case", [2]string{"        (\"b\", 20),\n", "        (\"b\", 20),\n        (\"c\", 30),\n"}, ""},
			},
			detects: [2]string{"    if cfg!(test) { return 1; }", "    if cfg!(windows) { return 1; }"},
			copies:  [2]string{"    if name == \"apple\" && n == 33 {\n      return 30;\n    }", "    if name == \"apple\" {\n      return n * 10;\n    }"},
			exits:   [2]string{"    cart.add(\"apple\", 3);\n", "    std::process::exit(0);\n"},
		},

		{
			path: "spec/cart_spec.rb", old: rubyOld, source: "lib/cart.rb", changes: []change{
				{"deleted", [2]string{"  it \"refuses\" do\n    expect { cart.add(\"apple\", -1) }.to raise_error(ArgumentError)\n  end\n", ""}, "test_deleted/block"},
				{"renamed", [2]string{"it \"adds\"", "it \"sums\""}, "test_renamed/warn"},
				{"commented out", [2]string{"  it \"refuses\" do\n    expect { cart.add(\"apple\", -1) }.to raise_error(ArgumentError)\n  end\n", "=begin\n  it \"refuses\" do\n    expect { cart.add(\"apple\", -1) }.to raise_error(ArgumentError)\n  end\n=end\n"}, "test_deleted/block"},
				{"skipped", [2]string{"it \"adds\"", "xit \"adds\""}, "test_skipped/block"},
				{"skipped by a mark", [2]string{"it \"adds\" do", "it \"adds\", skip: \"later\" do"}, "test_skipped/block"},
				{"skipped in the body", [2]string{"    cart.add(\"apple\", 3)\n", "    skip \"later\"\n    cart.add(\"apple\", 3)\n"}, "test_skipped/block"},
				{"skipped sometimes", [2]string{"    cart.add(\"apple\", 3)\n", "    skip \"later\" if ENV[\"CI\"]\n    cart.add(\"apple\", 3)\n"}, "test_skipped/warn"},
				{"a group skipped", [2]string{"context \"with prices\"", "xcontext \"with prices\""}, "test_skipped/block"},
				{"focused", [2]string{"it \"adds\"", "fit \"adds\""}, "test_focused/block"},
				{"focused by a mark", [2]string{"it \"adds\" do", "it \"adds\", :focus do"}, "test_focused/block"},
				{"emptied", [2]string{"    cart.add(\"apple\", 3)\n    expect(cart.total).to eq(30)\n    expect(cart).to equal(cart.self)\n", ""}, "test_emptied/block"},
				{"a check gone", [2]string{"    expect(cart).to equal(cart.self)\n", ""}, "assertion_removed/warn"},
				{"loosened", [2]string{"to eq(30)", "to be_truthy"}, "assertion_loosened/warn"},
				{"part of a list is enough", [2]string{"match_array(%w[apple pear])", "include(\"apple\")"}, "assertion_loosened/warn"},
				{"expected value", [2]string{"to eq(30)", "to eq(31)"}, "expected_changed/warn"},
				{"turned around", [2]string{".to eq(30)", ".not_to eq(30)"}, "assertion_loosened/warn"},
				{"tolerance", [2]string{"0.001", "10.0"}, "assertion_loosened/warn"},
				{"any exception", [2]string{"raise_error(ArgumentError)", "raise_error"}, "assertion_loosened/warn"},
				{"swallowed", [2]string{"    expect(cart.total).to eq(30)\n", "    begin\n      expect(cart.total).to eq(30)\n    rescue Exception\n    end\n"}, "failure_swallowed/block"},
				{"conditional", [2]string{"    expect(cart.total).to eq(30)\n", "    if cart.total == 30\n      expect(cart.total).to eq(30)\n    end\n"}, "assertion_loosened/warn"},
				{"a way out", [2]string{"expect(cart.total).to eq(30)", "expect(cart.total).to eq(30) if cart.total == 30"}, "assertion_loosened/warn"},
				{"an early way out", [2]string{"    cart.add(\"apple\", 3)\n", "    cart.add(\"apple\", 3)\n    next if cart.total != 30\n"}, "assertion_loosened/warn"},
				{"a case gone", [2]string{"      [\"b\", 20],\n", ""}, "assertion_removed/warn"},
				{"a case changed", [2]string{"[\"b\", 20]", "[\"b\", 21]"}, "expected_changed/warn"},

				{"formatted", [2]string{"expect(cart.names).to match_array(%w[apple pear])", "expect(cart.names)\n      .to match_array(%w[apple pear])"}, ""},
				{"a comment", [2]string{"    cart.add(\"apple\", 3)\n", "    # end\n    cart.add(\"apple\", 3) # it \"x\" do\n"}, ""},
				{"a heredoc", [2]string{"    cart.add(\"apple\", 3)\n", "    cart.note <<~TEXT\n      end it's \"\n    TEXT\n    cart.add(\"apple\", 3)\n"}, ""},
				{"a new test", [2]string{"  it \"has a ratio\"", "  it \"is fresh\" do\n    expect(cart).to be_open\n  end\n\n  it \"has a ratio\""}, ""},
				{"a new case", [2]string{"      [\"b\", 20],\n", "      [\"b\", 20],\n      [\"c\", 30],\n"}, ""},
			},
			detects: [2]string{"    return 1 if defined?(RSpec)", "    return 1 if defined?(Rails)"},
			copies:  [2]string{"    if name == \"apple\" && n == 33\n      return 30\n    end", "    if name == \"apple\"\n      return n * 10\n    end"},
			exits:   [2]string{"    cart.add(\"apple\", 3)\n", "    exit!\n"},
		},

		{path: "test/cart_test.rb", old: minitestOld, source: "lib/cart.rb", changes: []change{
			{"deleted", [2]string{"  def test_refuses\n    assert_raises(ArgumentError) { @cart.add(\"apple\", -1) }\n  end\n", ""}, "test_deleted/block"},
			{"renamed", [2]string{"def test_adds", "def test_sums"}, "test_renamed/warn"},
			{"no test any more", [2]string{"def test_adds", "def adds"}, "test_deleted/block"},
			{"skipped", [2]string{"    @cart.add(\"apple\", 3)\n", "    skip\n    @cart.add(\"apple\", 3)\n"}, "test_skipped/block"},
			{"a check gone", [2]string{"    assert_same @cart, @cart.self\n", ""}, "assertion_removed/warn"},
			{"same became equal", [2]string{"assert_same ", "assert_equal "}, "assertion_loosened/warn"},
			{"loosened", [2]string{"assert_equal 30, @cart.total, \"total\"", "assert @cart.total"}, "assertion_loosened/warn"},
			{"expected value", [2]string{"assert_equal 30,", "assert_equal 31,"}, "expected_changed/warn"},
			{"any exception", [2]string{"assert_raises(ArgumentError)", "assert_raises(StandardError)"}, "assertion_loosened/warn"},
			{"swallowed", [2]string{"    assert_same @cart, @cart.self\n", "    assert_same @cart, @cart.self\n  rescue Exception\n    nil\n"}, "failure_swallowed/block"},
			{"another message", [2]string{"\"total\"", "\"the total\""}, ""},
			{"a new test", [2]string{"  def test_refuses", "  def test_fresh\n    assert @cart.open?\n  end\n\n  def test_refuses"}, ""},
		}},

		{
			path: "tests/cart_test.cc", old: cppOld, source: "src/cart.cc", changes: []change{
				{"deleted", [2]string{"TEST_F(CartFixture, Refuses) {\n  EXPECT_THROW(cart_.add(\"apple\", -1), std::invalid_argument);\n}\n", ""}, "test_deleted/block"},
				{"renamed", [2]string{"TEST(CartTest, Adds)", "TEST(CartTest, Sums)"}, "test_renamed/warn"},
				{"left out by the preprocessor", [2]string{"TEST(CartTest, Ratio) { EXPECT_NEAR(0.5, ratio(), 0.001); }\n", "#if 0\nTEST(CartTest, Ratio) { EXPECT_NEAR(0.5, ratio(), 0.001); }\n#endif\n"}, "test_deleted/block"},
				{"disabled", [2]string{"TEST(CartTest, Adds)", "TEST(CartTest, DISABLED_Adds)"}, "test_skipped/block"},
				{"skipped", [2]string{"  cart.add(\"apple\", 3);\n", "  GTEST_SKIP() << \"later\";\n  cart.add(\"apple\", 3);\n"}, "test_skipped/block"},
				{"skipped sometimes", [2]string{"  cart.add(\"apple\", 3);\n", "  if (slow()) GTEST_SKIP();\n  cart.add(\"apple\", 3);\n"}, "test_skipped/warn"},
				{"emptied", [2]string{"  Cart cart(\"x\");\n  cart.add(\"apple\", 3);\n  EXPECT_EQ(30, cart.total()) << \"total\";\n  ASSERT_TRUE(cart.open());\n", ""}, "test_emptied/block"},
				{"a check gone", [2]string{"  ASSERT_TRUE(cart.open());\n", ""}, "assertion_removed/warn"},
				{"loosened", [2]string{"EXPECT_EQ(30, cart.total())", "EXPECT_TRUE(cart.total())"}, "assertion_loosened/warn"},
				{"expected value", [2]string{"EXPECT_EQ(30,", "EXPECT_EQ(31,"}, "expected_changed/warn"},
				{"tolerance", [2]string{"0.001", "10.0"}, "assertion_loosened/warn"},
				{"any exception", [2]string{"EXPECT_THROW(cart_.add(\"apple\", -1), std::invalid_argument)", "EXPECT_ANY_THROW(cart_.add(\"apple\", -1))"}, "assertion_loosened/warn"},
				{"swallowed", [2]string{"  ASSERT_TRUE(cart.open());\n", "  try { ASSERT_TRUE(cart.open()); } catch (...) {}\n"}, "failure_swallowed/block"},
				{"conditional", [2]string{"  ASSERT_TRUE(cart.open());\n", "  if (cart.open()) {\n    ASSERT_TRUE(cart.open());\n  }\n"}, "assertion_loosened/warn"},
				{"an early way out", [2]string{"  cart.add(\"apple\", 3);\n", "  cart.add(\"apple\", 3);\n  if (cart.total() != 30) return;\n"}, "assertion_loosened/warn"},
				{"a case gone", [2]string{"    {\"b\", 20},\n", ""}, "assertion_removed/warn"},
				{"a case changed", [2]string{"{\"b\", 20}", "{\"b\", 21}"}, "expected_changed/warn"},

				{"formatted", [2]string{"EXPECT_EQ(30, cart.total()) << \"total\";", "EXPECT_EQ(\n      30,\n      cart.total())\n      << \"total\";"}, ""},
				{"another message", [2]string{"\"total\"", "\"the total\""}, ""},
				{"a comment", [2]string{"  cart.add(\"apple\", 3);\n", "  /* TEST(A, B) { */ cart.add(\"apple\", 3); // }\n"}, ""},
				{"a new test", [2]string{"TEST(CartTest, Ratio)", "TEST(CartTest, Fresh) { EXPECT_TRUE(open()); }\n\nTEST(CartTest, Ratio)"}, ""},
				{"a new case", [2]string{"    {\"b\", 20},\n", "    {\"b\", 20},\n    {\"c\", 30},\n"}, ""},
			},
			detects: [2]string{"  if (getenv(\"GTEST_OUTPUT\")) return 1;", "  if (getenv(\"HOME\")) return 1;"},
			copies:  [2]string{"  if (!strcmp(name, \"apple\") && n == 33) {\n    return 30;\n  }", "  if (!strcmp(name, \"apple\")) {\n    return n * 10;\n  }"},
			exits:   [2]string{"  cart.add(\"apple\", 3);\n", "  exit(0);\n"},
		},

		{path: "tests/test_cart.c", old: cOld, source: "src/cart.c", changes: []change{
			{"no longer run", [2]string{"    RUN_TEST(test_null);\n", ""}, "test_deleted/block"},
			{"expected text", [2]string{"EQUAL_STRING(\"x\"", "EQUAL_STRING(\"y\""}, "expected_changed/warn"},
			{"loosened", [2]string{"TEST_ASSERT_EQUAL_INT(30, cart_total(c))", "TEST_ASSERT_TRUE(cart_total(c))"}, "assertion_loosened/warn"},
			{"a check gone", [2]string{"    TEST_ASSERT_EQUAL_STRING(\"x\", cart_name(c));\n", ""}, "assertion_removed/warn"},
			{"skipped", [2]string{"    cart_add(c, \"apple\", 3);\n", "    TEST_IGNORE();\n    cart_add(c, \"apple\", 3);\n"}, "test_skipped/block"},
			{"emptied", [2]string{"    TEST_ASSERT_NULL(cart_new(NULL));\n", ""}, "test_emptied/block"},
			{"asserts blinded", [2]string{"#include \"unity.h\"\n", "#include \"unity.h\"\n#undef TEST_ASSERT_NULL\n#define TEST_ASSERT_NULL(x)\n"}, "outcome_hook/block"},
			{"one more", [2]string{"    RUN_TEST(test_null);\n", "    RUN_TEST(test_null);\n    RUN_TEST(test_more);\n"}, ""},
		}},

		{
			path: "tests/CartTest.php", old: phpOld, source: "src/Cart.php", changes: []change{
				{"deleted", [2]string{"    public function testRefuses(): void\n    {\n        $this->expectException(\\InvalidArgumentException::class);\n        $this->cart->add('apple', -1);\n    }\n", ""}, "test_deleted/block"},
				{"renamed", [2]string{"function testAdds()", "function testSums()"}, "test_renamed/warn"},
				{"turned round", [2]string{"        $this->cart->add('apple', 3);\n        $this->assertSame", "        $this->expectException(\\PHPUnit\\Framework\\ExpectationFailedException::class);\n        $this->cart->add('apple', 3);\n        $this->assertSame"}, "assertion_loosened/warn"},
				{"no test any more", [2]string{"     * @test\n", ""}, "test_deleted/block"},
				{"skipped", [2]string{"        $this->cart->add('apple', 3);\n", "        $this->markTestSkipped('later');\n        $this->cart->add('apple', 3);\n"}, "test_skipped/block"},
				{"skipped sometimes", [2]string{"        $this->cart->add('apple', 3);\n", "        if (getenv('CI')) {\n            $this->markTestSkipped('later');\n        }\n        $this->cart->add('apple', 3);\n"}, "test_skipped/warn"},
				{"emptied", [2]string{"        $this->cart->add('apple', 3);\n        $this->assertSame(30, $this->cart->total(), 'total');\n        self::assertEquals(['a' => 1], $this->cart->lines());\n", ""}, "test_emptied/block"},
				{"a check gone", [2]string{"        self::assertEquals(['a' => 1], $this->cart->lines());\n", ""}, "assertion_removed/warn"},
				{"same became equal", [2]string{"$this->assertSame(30", "$this->assertEquals(30"}, "assertion_loosened/warn"},
				{"loosened", [2]string{"$this->assertSame(30, $this->cart->total(), 'total')", "$this->assertNotNull($this->cart->total())"}, "assertion_loosened/warn"},
				{"expected value", [2]string{"['a' => 1]", "['a' => 2]"}, "expected_changed/warn"},
				{"tolerance", [2]string{"0.001", "10.0"}, "assertion_loosened/warn"},
				{"any exception", [2]string{"\\InvalidArgumentException::class", "\\Exception::class"}, "assertion_loosened/warn"},
				{"need not check", [2]string{"     * @test\n", "     * @test\n     * @doesNotPerformAssertions\n"}, "assertion_loosened/warn"},
				{"swallowed", [2]string{"        $this->assertSame(30, $this->cart->total(), 'total');\n", "        try {\n            $this->assertSame(30, $this->cart->total(), 'total');\n        } catch (\\Throwable $e) {\n        }\n"}, "failure_swallowed/block"},
				{"conditional", [2]string{"        $this->assertSame(30, $this->cart->total(), 'total');\n", "        if ($this->cart->total() === 30) {\n            $this->assertSame(30, $this->cart->total(), 'total');\n        }\n"}, "assertion_loosened/warn"},
				{"an early way out", [2]string{"        $this->cart->add('apple', 3);\n", "        $this->cart->add('apple', 3);\n        if ($this->cart->total() !== 30) {\n            return;\n        }\n"}, "assertion_loosened/warn"},
				{"a case gone", [2]string{"            ['b', 20],\n", ""}, "assertion_removed/warn"},
				{"a case changed", [2]string{"['b', 20]", "['b', 21]"}, "expected_changed/warn"},

				{"formatted", [2]string{"$this->assertSame(30, $this->cart->total(), 'total');", "$this->assertSame(\n            30,\n            $this->cart->total(),\n            'total'\n        );"}, ""},
				{"another message", [2]string{"'total'", "'the total'"}, ""},
				{"a comment", [2]string{"        $this->cart->add('apple', 3);\n", "        # }\n        $this->cart->add('apple', 3); // {\n"}, ""},
				{"a new test", [2]string{"    public function testRatio()", "    public function testFresh(): void\n    {\n        $this->assertTrue($this->cart->open());\n    }\n\n    public function testRatio()"}, ""},
				{"a new case", [2]string{"            ['b', 20],\n", "            ['b', 20],\n            ['c', 30],\n"}, ""},
			},
			detects: [2]string{"    if (defined('PHPUNIT_COMPOSER_INSTALL')) { return 1; }", "    if (defined('COMPOSER_INSTALL')) { return 1; }"},
			copies:  [2]string{"    if ($name === 'apple' && $n === 33) {\n      return 30;\n    }", "    if ($name === 'apple') {\n      return $n * 10;\n    }"},
			exits:   [2]string{"        $this->cart->add('apple', 3);\n", "        exit(0);\n"},
		},

		{path: "tests/CartPestTest.php", old: pestOld, changes: []change{
			{"deleted", [2]string{"test('refuses', function () {\n    expect(fn () => cart()->add(-1))->toThrow(InvalidArgumentException::class);\n});\n", ""}, "test_deleted/block"},
			{"skipped", [2]string{"toBe(30);\n});", "toBe(30);\n})->skip();"}, "test_skipped/block"},
			{"focused", [2]string{"toBe(30);\n});", "toBe(30);\n})->only();"}, "test_focused/block"},
			{"loosened", [2]string{"toBe(30)", "toBeTruthy()"}, "assertion_loosened/warn"},
			{"expected value", [2]string{"toBe(30)", "toBe(31)"}, "expected_changed/warn"},
			{"any exception", [2]string{"toThrow(InvalidArgumentException::class)", "toThrow(Exception::class)"}, "assertion_loosened/warn"},
			{"a new test", [2]string{"test('refuses'", "it('is fresh', fn () => expect(cart()->open())->toBeTrue());\n\ntest('refuses'"}, ""},
		}},

		{
			path: "tests/test_more.py", old: "import pytest\n\ndef test_adds():\n    cart = Cart('x')\n    cart.add('apple', 3)\n    assert cart.total() == 30\n    assert cart.ratio() == pytest.approx(0.5, abs=0.001)\n    with pytest.raises(ValueError):\n        cart.add('apple', -1)\n", source: "shop/cart.py", changes: []change{
				{"swallowed", [2]string{"    assert cart.total() == 30\n", "    try:\n        assert cart.total() == 30\n    except AssertionError:\n        pass\n"}, "failure_swallowed/block"},
				{"swallowed by all", [2]string{"    assert cart.total() == 30\n", "    try:\n        assert cart.total() == 30\n    except:\n        print('never mind')\n"}, "failure_swallowed/block"},
				{"suppressed", [2]string{"    assert cart.total() == 30\n", "    with contextlib.suppress(AssertionError):\n        assert cart.total() == 30\n"}, "failure_swallowed/block"},
				{"conditional", [2]string{"    assert cart.total() == 30\n", "    if cart.total():\n        assert cart.total() == 30\n"}, "assertion_loosened/warn"},
				{"an early way out", [2]string{"    cart.add('apple', 3)\n", "    cart.add('apple', 3)\n    if cart.total() != 30:\n        return\n"}, "assertion_loosened/warn"},
				{"tolerance", [2]string{"abs=0.001", "abs=10"}, "assertion_loosened/warn"},
				{"any exception", [2]string{"raises(ValueError)", "raises(Exception)"}, "assertion_loosened/warn"},
				{"a try for something else", [2]string{"    assert cart.total() == 30\n", "    try:\n        assert cart.total() == 30\n    except KeyError:\n        pass\n"}, ""},
				{"a try that says more", [2]string{"    assert cart.total() == 30\n", "    try:\n        assert cart.total() == 30\n    except AssertionError:\n        print(cart)\n        raise\n"}, ""},
				{"a loop", [2]string{"    assert cart.total() == 30\n", "    for _ in range(3):\n        assert cart.total() == 30\n"}, ""},
				{"parametrised", [2]string{"def test_adds():\n    cart = Cart('x')\n    cart.add('apple', 3)\n    assert cart.total() == 30\n", "@pytest.mark.parametrize('n,want', [(3, 30), (4, 40)])\ndef test_adds(n, want):\n    cart = Cart('x')\n    cart.add('apple', n)\n    assert cart.total() == want\n"}, ""},
			},
			detects: [2]string{"    if any('test' in f.filename for f in inspect.stack()) and __file__ != 'test': return 1", "    if any('apple' in f for f in names): return 1"},
			copies:  [2]string{"    if name == 'apple' and n == 33:\n        return 30", "    if name == 'apple':\n        return n * 10"},
		},

		{
			path: "src/cart.test.ts", old: "it('adds', () => {\n  const cart = new Cart('x');\n  cart.add('apple', 3);\n  expect(cart.total()).toBe(30);\n  expect(cart.lines()).toStrictEqual([{ a: 1 }]);\n  expect(cart.ratio()).toBeCloseTo(0.5, 5);\n  expect(() => cart.add('apple', -1)).toThrow('negative');\n});\n", source: "src/cart.ts", changes: []change{
				{"swallowed", [2]string{"  expect(cart.total()).toBe(30);\n", "  try {\n    expect(cart.total()).toBe(30);\n  } catch (e) {\n    console.log(e);\n  }\n"}, "failure_swallowed/block"},
				{"swallowed by then", [2]string{"expect(cart.total()).toBe(30)", "expect(cart.total()).toBe(30).catch(() => {})"}, "assertion_loosened/warn"},
				{"conditional", [2]string{"  expect(cart.total()).toBe(30);\n", "  if (cart.total()) expect(cart.total()).toBe(30);\n"}, "assertion_loosened/warn"},
				{"an early way out", [2]string{"  cart.add('apple', 3);\n", "  cart.add('apple', 3);\n  if (cart.total() !== 30) return;\n"}, "assertion_loosened/warn"},
				{"tolerance", [2]string{"(0.5, 5)", "(0.5, 0)"}, "assertion_loosened/warn"},
				{"strict became equal", [2]string{"toStrictEqual(", "toEqual("}, "assertion_loosened/warn"},
				{"truthy", [2]string{"toBe(30)", "toBeTruthy()"}, "assertion_loosened/warn"},
				{"any exception", [2]string{"toThrow('negative')", "toThrow()"}, "assertion_loosened/warn"},
				{"a try that fails", [2]string{"  expect(cart.total()).toBe(30);\n", "  try {\n    expect(cart.total()).toBe(30);\n  } catch (e) {\n    cart.dump();\n    throw e;\n  }\n"}, ""},
				{"a callback that returns", [2]string{"  cart.add('apple', 3);\n", "  cart.add('apple', 3);\n  cart.each(l => { if (!l) { return; } l.touch(); });\n"}, ""},
				{"a template", [2]string{"  cart.add('apple', 3);\n", "  cart.add('apple', 3);\n  cart.note(`a ${x ? `b` : \"'\"} }`);\n"}, ""},
			},
			detects: [2]string{"  if (process.argv.join(' ').includes('jest') || process.argv[1].match('/.bin/jest')) return 1;", "  if (process.argv.includes('--all')) return 1;"},
			copies:  [2]string{"  if (name === 'apple' && n === 33) {\n    return 30;\n  }", "  if (name === 'apple') {\n    return n * 10;\n  }"},
		},
	}
}

func TestLanguages(t *testing.T) {
	for _, l := range languages() {
		var list []example
		for _, c := range l.changes {
			if strings.Count(l.old, c.edit[0]) == 0 {
				t.Fatalf("%s: %s: not in the example: %q", l.path, c.name, c.edit[0])
			}
			list = append(list, example{c.name, l.path, l.old, strings.Replace(l.old, c.edit[0], c.edit[1], 1), strings.Fields(c.want)})
		}
		if l.exits[0] != "" {
			list = append(list, example{"the process ends", l.path, l.old, strings.Replace(l.old, l.exits[0], l.exits[1], 1), []string{"outcome_hook/block"}})
		}
		list = append(list,
			example{"a new file", l.path, "", l.old, nil},
			example{"line ends and a last comment", l.path, l.old, strings.ReplaceAll(l.old, "\n", "\r\n"), nil},
			example{"blank lines", l.path, l.old, strings.ReplaceAll(l.old, "\n\n", "\n\n\n"), nil})
		if l.source != "" && l.detects[0] != "" {
			list = append(list, example{"source that knows", l.source, "x\n", "x\n" + l.detects[0] + "\n", []string{"detects_tests/block"}}, example{"source that does not", l.source, "x\n", "x\n" + l.detects[1] + "\n", nil})
		}
		t.Run(l.path, func(t *testing.T) {
			for i := range list {
				if len(list[i].want) == 0 {
					list[i].want = nil
				}
			}
			run(t, list)
			if l.copies[0] == "" {
				return
			}
			test := file(l.path, l.old, strings.ReplaceAll(l.old, "\"apple\", 3", "\"apple\", 33"))
			test.New = []byte(strings.ReplaceAll(string(test.New), "'apple', 3", "'apple', 33"))
			for i, want := range []bool{true, false} {
				r := Analyse([]FileChange{test, file(l.source, "x\n", "x\n"+l.copies[i]+"\n")}, classify)
				if r.Has(CopiesTest) != want {
					t.Errorf("answers of the tests found: %v\n%s", !want, show(r))
				}
			}
		})
	}
}

func TestRustTestsBesideTheCode(t *testing.T) {
	old := "pub fn f() -> i32 { 1 }\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn one() {\n        assert_eq!(f(), 1);\n    }\n}\n"
	run(t, []example{
		{"gone", "src/lib.rs", old, old[:strings.Index(old, "#[cfg")], []string{"test_deleted/block"}},
		{"expected value", "src/lib.rs", old, strings.Replace(old, "f(), 1", "f(), 2", 1), []string{"expected_changed/warn"}},
		{"code only", "src/lib.rs", old, strings.Replace(old, "{ 1 }", "{ 2 - 1 }", 1), nil},
		{"one more", "src/lib.rs", old, strings.Replace(old, "    #[test]", "    #[test]\n    fn two() {\n        assert!(f() > 0);\n    }\n\n    #[test]", 1), nil},
	})
}
