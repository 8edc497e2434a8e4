// Mistakes in TOML, and what is none.
#include "base/toml_syntax.h"

#include <gtest/gtest.h>

#include <ostream>

namespace ms {

static void PrintTo(const SyntaxProblem& problem, std::ostream* out) {
  *out << problem.line << ":" << problem.column << ": " << problem.message;
}

namespace {

TEST(TomlSyntax, NamesCommonMistakes) {
  struct Case {
    const char* text;
    SyntaxProblem problem;
  };
  for (const Case& c : {
           Case{"a = { b = 1\nc = 2\n", {1, 5, "'{' is not closed"}},
           Case{"[model]\nlayers = [1, 2\nheads = 3\n", {2, 10, "'[' is not closed"}},
           Case{"[model\nlayers = 1\n", {1, 1, "'[' is not closed"}},
           Case{"a = [1, {b = 2]\n", {1, 9, "'{' is not closed"}},
           Case{"a = 1]\n", {1, 6, "']' closes nothing"}},
           Case{"a = \"text\nb = 1\n", {1, 5, "the string that begins with \" is not closed"}},
           Case{"a = 'C:\\'\nb = 'y\n", {2, 5, "the string that begins with ' is not closed"}},
           Case{"a = 1\nb = \"\"\"\nmore\n", {4, 1, "a string that begins with \"\"\" is not closed"}},
           Case{"[model]\nlayers 12\n", {2, 1, "expected KEY = VALUE or [SECTION]"}},
           Case{"  model: 3\n", {1, 3, "expected KEY = VALUE or [SECTION]"}},
           Case{"layers = \n", {1, 8, "a value is missing behind '='"}},
           Case{"layers = # none\n", {1, 8, "a value is missing behind '='"}},
           Case{"family = llama  # a model\n", {1, 10, "a string needs quotes: \"llama\""}},
           Case{"timeout = 30s\n", {1, 11, "a string needs quotes: \"30s\""}},
           Case{"size = 1.5GiB\n", {1, 8, "a string needs quotes: \"1.5GiB\""}},
           Case{"fp8 = True\n", {1, 7, "True is written true"}},
           Case{"[optim]\nlr = .001\n", {2, 6, "a number begins with a digit: 0.001"}},
           Case{"lr = -.5e3 # low\n", {1, 6, "a number begins with a digit: -0.5"}},
           Case{"lr = 5.\n", {1, 6, "a number ends with a digit: 5.0"}},
           Case{"dir = ./runs/a # here\n", {1, 7, "a string needs quotes: \"./runs/a\""}},
           Case{"dir = /scratch/a\n", {1, 7, "a string needs quotes: \"/scratch/a\""}},
       }) {
    EXPECT_EQ(common_toml_mistake(c.text), c.problem) << c.text;
  }
}

TEST(TomlSyntax, FindsNoneInWhatIsToml) {
  for (const char* text :
       {"", "\n\n# only a comment = [\n", "[a]\nb = 1 # ] }\n[[c.d]]\ne = true\n",
        "a = [\n  \"x]\", # [\n  '{',\n]\nb = {c = 1}\n", "a = \"\"\"\n[ \" {\n\"\"\"\nb = '''\n'\n'''\n",
        "\"a = b\" = 1\n'c' = \"\\\"=[\"\n", "a = -inf\nb = nan\nc = 1979-05-27T07:32:00Z\n", "a = 1\r\nb = \"x\"\r\n",
        "a = 0x1F\nb = 1e5\nc = 1_000\n", "a = 0.5\nb = -1.5e-3\nc = +2.0 # .\n"}) {
    EXPECT_EQ(common_toml_mistake(text), std::nullopt) << text;
  }
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(TomlSyntax, KeepsFromTheParserWhatItCannotBear) {
  struct Case {
    std::string text;
    SyntaxProblem problem;
  };
  const std::string comments = repeated("# c\n", 6000);
  for (const Case& c : {
           Case{comments + "a = 1 # \xff\n", {6001, 9, "byte 0xff is not UTF-8"}},
           Case{comments + "a = \"\xe2\x82", {6001, 6, "byte 0xe2 is not UTF-8"}},
           Case{"\xc0\x8a", {1, 1, "byte 0xc0 is not UTF-8"}},
           Case{repeated("\n", 8192) + "a = 1\n", {8193, 1, "more than 8192 lines"}},
           Case{"a = [\n" + repeated("1,", 20'000) + "]", {2, 32769, "a line of more than 32768 bytes"}},
           Case{repeated("# comment\n", 30'000), {1, 1, "300000 bytes, at most 262144 are read"}},
           Case{"a = 1\nb = " + repeated("[", 65), {2, 69, "nested deeper than 64 levels"}},
           Case{repeated("a.", 65), {1, 130, "nested deeper than 64 levels"}},
           Case{"b = 1\na = " + repeated("{b.b.b = ", 30), {2, 196, "nested deeper than 64 levels"}},
       }) {
    EXPECT_EQ(unfit_for_toml(c.text), c.problem) << c.text.substr(0, 80);
  }
}

TEST(TomlSyntax, LetsThroughWhatPeopleWrite) {
  for (const std::string& text :
       {std::string(), repeated("\n", 8192), repeated("# caf\xc3\xa9 ...\n", 8000), repeated("a.b.c = 1.5\n", 8000),
        "[" + repeated("a.", 60) + "a]\nb = [[1.0, 2.5], []]\n",
        "a = [" + repeated("\"/data/x.y/z.bin\", ", 1500) + "]\n", repeated("{a = 1}]", 200)}) {
    EXPECT_EQ(unfit_for_toml(text), std::nullopt) << text.substr(0, 80);
  }
}

}  // namespace
}  // namespace ms
