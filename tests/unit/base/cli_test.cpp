#include "base/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "base/error.h"
#include "base/man.h"
#include "base/subprocess.h"

namespace ms {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Tool sample_tool() {
  Tool tool{.name = "ms-sample", .summary = "shows what a table of commands can do", .commands = {}};
  tool.description = "A first sentence. A second one.\n\n.A paragraph that starts with a dot and a \\ backslash.";
  tool.examples = {{"ms-sample inspect --json 'a b' \"c\"", "Show two files:"}, {"ms-sample fail user", "Fail:"}};
  tool.see_also = {"ms-train(1)", "ms.toml(5)", "ms-ckpt(1)"};
  tool.extra_pages = {{"--man-extra", [] { return std::string("extra page\n"); }}};
  tool.commands = {
      {.name = "inspect",
       .summary = "show what files hold",
       .positionals = {{.name = "FIRST", .doc = "The first file."},
                       {.name = "MORE", .doc = "And more of them.", .required = false, .many = true}},
       .options = {{.name = "json", .doc = "One document."},
                   {.name = "rate", .value = "N", .doc = "How many.", .default_text = "4", .letter = 'r'},
                   {.name = "wait", .value = "TIME", .doc = "How long.", .default_text = "1m30s"},
                   {.name = "set", .value = "KEY=VALUE", .doc = "A setting.", .many = true},
                   {.name = "out", .value = "FILE", .doc = "Where to."}},
       .run =
           [](const Args& args) {
             fmt::print("{}|{}|json {}|rate {}|wait {}|set {}|out '{}' {}\n", args.get("FIRST"),
                        fmt::join(args.list("MORE"), ","), args.has("json"), args.get_int("rate", 0, 100),
                        args.get_seconds("wait"), fmt::join(args.list("set"), ","), args.get("out"), args.has("out"));
             return 0;
           },
       .description = "It reads them.\n\nThen it prints."},
      {.name = "fail",
       .summary = "end badly",
       .positionals = {{.name = "HOW", .doc = "In which way.", .required = false}},
       .run = [](const Args& args) -> int {
         const std::string how = args.get("HOW");
         if (how == "storage") throw Error("file.write", Blame::storage, "cannot write", "make room");
         if (how == "user") throw user_error("x", "no such thing");
         if (how == "std") throw std::runtime_error("surprise");
         if (how == "memory") throw std::bad_alloc();
         if (how == "declared") args.get("undeclared");
         return 93;
       }},
  };
  return tool;
}

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

int run_uncaptured(const std::vector<const char*>& words) {
  std::vector<const char*> argv{"ms-sample"};
  argv.insert(argv.end(), words.begin(), words.end());
  argv.push_back(nullptr);
  return run_tool(sample_tool(), static_cast<int>(argv.size()) - 1, argv.data());
}

Outcome run(const std::vector<const char*>& words) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int status = run_uncaptured(words);
  std::string out = ::testing::internal::GetCapturedStdout();
  return {status, std::move(out), ::testing::internal::GetCapturedStderr()};
}

TEST(Cli, ParsesWhatTheTableDeclares) {
  const struct {
    std::vector<const char*> words;
    const char* out;
  } rows[] = {
      {{"inspect", "a"}, "a||json false|rate 4|wait 90|set |out '' false\n"},
      {{"inspect", "a", "b", "c", "--json"}, "a|b,c|json true|rate 4|wait 90|set |out '' false\n"},
      {{"inspect", "--rate", "7", "a"}, "a||json false|rate 7|wait 90|set |out '' false\n"},
      {{"inspect", "-r8", "--wait=2m", "a"}, "a||json false|rate 8|wait 120|set |out '' false\n"},
      {{"inspect", "--set", "a.b=c", "a", "--set", "d=e,f", "b"},
       "a|b|json false|rate 4|wait 90|set a.b=c,d=e,f|out '' false\n"},
      {{"inspect", "--wait", "2.5", "--out=", "a"}, "a||json false|rate 4|wait 2.5|set |out '' true\n"},
      {{"inspect", "--", "--json"}, "--json||json false|rate 4|wait 90|set |out '' false\n"},
      {{"inspect", "-"}, "-||json false|rate 4|wait 90|set |out '' false\n"},
      {{"inspect", "a", "--", "b", "--", "--out="}, "a|b,--,--out=|json false|rate 4|wait 90|set |out '' false\n"},
      {{"inspect", "--out", "--json", "a"}, "a||json false|rate 4|wait 90|set |out '--json' true\n"},
      {{"inspect", "--out", "--", "a"}, "a||json false|rate 4|wait 90|set |out '--' true\n"},
      {{"inspect", "--out=--rate=", "--set", "--set=", "a"},
       "a||json false|rate 4|wait 90|set --set=|out '--rate=' true\n"},
      {{"inspect", "", "--out", ""}, "||json false|rate 4|wait 90|set |out '' true\n"},
      {{"inspect", "[a,b]", "[c,d]", "++", "fail", "inspect"},
       "[a,b]|[c,d],++,fail,inspect|json false|rate 4|wait 90|set |out '' false\n"},
  };
  for (const auto& row : rows) {
    const Outcome outcome = run(row.words);
    EXPECT_EQ(outcome.out, row.out) << outcome.err;
    EXPECT_EQ(outcome.status, 0);
    EXPECT_THAT(outcome.err, IsEmpty());
  }
}

TEST(Cli, MisuseEndsWithTwoAndSaysHowItIsUsed) {
  const std::string inspect = "usage: ms-sample inspect [options] FIRST [MORE...]  (try 'ms-sample inspect --help')\n";
  const struct {
    std::vector<const char*> words;
    std::string message;
  } rows[] = {
      {{}, "a command is missing\nusage: ms-sample COMMAND [options]  (try 'ms-sample --help')\n"},
      {{"inspekt"}, "unknown command 'inspekt', did you mean 'inspect'?\nusage: ms-sample COMMAND"},
      {{"zzz"}, "unknown command 'zzz'\n"},
      {{"run.toml"}, "a command is missing before 'run.toml'\n"},
      {{"--jsno"}, "unknown option '--jsno'\n"},
      {{"inspect"}, "FIRST is missing\n" + inspect},
      {{"inspect", "a", "--jsno"}, "unknown option '--jsno', did you mean '--json'?\n" + inspect},
      {{"inspect", "--jsno"}, "unknown option '--jsno', did you mean '--json'?\n" + inspect},
      {{"inspect", "a", "--rat=3"}, "unknown option '--rat', did you mean '--rate'?\n"},
      {{"inspect", "a", "-x"}, "unknown option '-x'\n"},
      {{"inspect", "a", "--rate"}, "--rate needs a value, N\n"},
      {{"inspect", "a", "--rate", "1", "-r2"}, "--rate is given twice\n"},
      {{"inspect", "a", "--json", "--json"}, "--json is given twice\n"},
      {{"inspect", "a", "--json=1"}, "--json takes no value\n"},
      {{"inspect", "a", "--json=true"}, "--json takes no value\n"},
      {{"inspect", "a", "--json="}, "--json takes no value\n"},
      {{"inspect", "a", "-r"}, "-r needs a value, N\n"},
      {{"inspect", "a", "-5"}, "unknown option '-5'\n"},
      {{"inspect", "--!", "a"}, "unknown option '--!'\n"},
      {{"inspect", "a", "--steps=5"}, "unknown option '--steps'; keys of the configuration are set with --set "},
      {{"inspect", "a", "-rx", "--js"}, "unknown option '--js'"},
      {{"fail", "--", "user", "--rate=2"}, "unexpected argument '--rate=2'\n"},
      {{"fail", "user", "extra"}, "unexpected argument 'extra'\nusage: ms-sample fail [HOW]  (try"},
  };
  for (const auto& row : rows) {
    const Outcome outcome = run(row.words);
    EXPECT_EQ(outcome.status, 2) << row.message;
    EXPECT_THAT(outcome.err, StartsWith("ms-sample: error: "));
    EXPECT_THAT(outcome.err, HasSubstr(row.message));
    EXPECT_THAT(outcome.err, HasSubstr("usage: "));
    EXPECT_THAT(outcome.out, IsEmpty()) << row.message;
  }
}

TEST(Cli, RefusesValuesThatAreNotOfTheirType) {
  const struct {
    std::vector<const char*> words;
    const char* err;
  } rows[] = {
      {{"inspect", "a", "--rate", "x"}, "ms-sample: error: --rate: expected an integer, got 'x'\n"},
      {{"inspect", "a", "--rate", "1.5"}, "ms-sample: error: --rate: expected an integer, got '1.5'\n"},
      {{"inspect", "a", "--rate", "-5"}, "ms-sample: error: --rate: must be 0 to 100, got -5\n"},
      {{"inspect", "a", "--rate", "101"}, "ms-sample: error: --rate: must be 0 to 100, got 101\n"},
      {{"inspect", "a", "--wait", "soon"},
       "ms-sample: error: --wait: expected a duration such as 30s or 1h30m, got 'soon'\n"},
      {{"inspect", "a", "--wait", "-1"},
       "ms-sample: error: --wait: expected a duration such as 30s or 1h30m, got '-1'\n"},
  };
  for (const auto& row : rows) {
    const Outcome outcome = run(row.words);
    EXPECT_EQ(outcome.err, row.err);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.out, IsEmpty());
  }
}

TEST(Cli, ErrorsBecomeExitCodes) {
  const struct {
    const char* how;
    int status;
    const char* err;
  } rows[] = {{"storage", 74, "ms-sample: error: cannot write\nhint: make room\n"},
              {"user", 2, "ms-sample: error: no such thing\n"},
              {"std", 70, "ms-sample: bug: surprise\n"},
              {"memory", 2,
               "ms-sample: error: out of memory: the system has no more for this process\nhint: 'ulimit -v' and "
               "memory.max of the control group limit it; fewer ranks in a process need less\n"},
              {"other", 93, ""}};
  for (const auto& row : rows) {
    const Outcome outcome = run({"fail", row.how});
    EXPECT_EQ(outcome.status, row.status);
    EXPECT_EQ(outcome.err, row.err);
  }
  EXPECT_DEATH(run_uncaptured({"fail", "declared"}), "the command declares no 'undeclared'");
}

TEST(Cli, RefusesABadLogFilter) {
  ASSERT_EQ(::setenv("MS_LOG", "loud", 1), 0);
  const Outcome outcome = run({"inspect", "a"});
  ASSERT_EQ(::unsetenv("MS_LOG"), 0);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("MS_LOG"));
}

TEST(Cli, CheckParsesAndRunsNothing) {
  EXPECT_EQ(run({"--check", "inspect", "a"}).out, "ok\n");
  EXPECT_EQ(run({"--check", "fail"}).status, 0);
  const Outcome misuse = run({"--check", "inspect", "a", "--no-such"});
  EXPECT_EQ(misuse.status, 2);
  EXPECT_THAT(misuse.err, HasSubstr("unknown option '--no-such'"));
  EXPECT_EQ(run({"--check"}).status, 2);
}

TEST(Cli, CompletionIsForShellsThatAreKnown) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = run({"--completion", shell});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_THAT(outcome.out, HasSubstr("inspect"));
  }
  const Outcome outcome = run({"--completion", "csh"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("expected bash, zsh or fish"));
}

TEST(Cli, HelpAndVersionAreResults) {
  for (const char* flag : {"--help", "-h"}) {
    const Outcome outcome = run({flag});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.out,
              "usage: ms-sample COMMAND [options]\n\n"
              "ms-sample: shows what a table of commands can do\n\n"
              "commands:\n"
              "  inspect  show what files hold\n"
              "  fail     end badly\n\n"
              "options:\n"
              "  --help              Show this text.\n"
              "  --version           Show the version.\n"
              "  --man               Print the manual page, for 'man -l -'.\n"
              "  --completion SHELL  Print the shell completion for bash, zsh or fish.\n"
              "  --check COMMAND...  Only check whether this command line is valid.\n\n"
              "'ms-sample COMMAND --help' shows the options of a command; the manual is\n"
              "ms-sample(1), or 'ms-sample --man | man -l -'.\n");
    EXPECT_THAT(outcome.err, IsEmpty());
  }
  const Outcome command = run({"inspect", "--help"});
  EXPECT_EQ(command.status, 0);
  EXPECT_EQ(command.out,
            "usage: ms-sample inspect [options] FIRST [MORE...]\n\n"
            "show what files hold\n\n"
            "arguments:\n"
            "  FIRST      The first file.\n"
            "  [MORE...]  And more of them.\n\n"
            "options:\n"
            "  --json           One document.\n"
            "  -r, --rate N     How many. Default: 4.\n"
            "  --wait TIME      How long. Default: 1m30s.\n"
            "  --set KEY=VALUE  A setting. May be given several times.\n"
            "  --out FILE       Where to.\n"
            "  --help           Show this text.\n");
  // The name of a long option stands alone, so that what is said of all has room on a terminal of 80 columns.
  Tool tool = sample_tool();
  tool.commands[0].options = {{.name = "transport",
                               .value = "tcp|mpi|verbs|nccl",
                               .doc = "Which.",
                               .default_text = "a_first_word,a_second_word,a_third_word,a_fourth_word"}};
  const char* const words[] = {"ms-sample", "inspect", "--help"};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_tool(tool, 3, words), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("options:\n"
                        "  --transport tcp|mpi|verbs|nccl\n"
                        "                            Which. Default:\n"
                        "                            a_first_word,a_second_word,a_third_word,\n"
                        "                            a_fourth_word.\n"
                        "  --help                    Show this text.\n"));
  EXPECT_THAT(run({"--version"}).out, ::testing::MatchesRegex("ms-sample [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_EQ(run({"--man-extra"}).out, "extra page\n");
  EXPECT_EQ(run({"--man"}).out, man::tool_page(sample_tool()));
  EXPECT_EQ(run({"--man-exit"}).out, man::exit_page());
}

[[noreturn]] void print_to_a_full_disk() {
  if (std::freopen("/dev/full", "w", stdout) == nullptr) std::exit(1);
  const char* argv[] = {"ms-sample", "--version"};
  std::exit(run_tool(sample_tool(), 2, argv));
}

TEST(Cli, ResultsThatCannotBeWrittenAreStorage) {
  EXPECT_EXIT(print_to_a_full_disk(), ::testing::ExitedWithCode(74),
              "cannot write the results to standard output: No space left on device");
}

// Manual pages.

struct ManSample {
  std::int64_t size_bytes = 1 << 20;
  std::string mode = "\"odd\" \\ default";
  std::vector<std::string> list = {"a"};
};

man::ConfigPage sample_page() {
  return {.name = "ms-sample.toml", .summary = "a sample", .description = "A file.", .see_also = {"ms-sample(1)"}};
}

std::vector<ConfigRow> sample_rows() {
  static constexpr Field<ManSample> kFields[] = {
      {.key = "size",
       .member = &ManSample::size_bytes,
       .doc = "How large. Second sentence.",
       .unit = Unit::bytes,
       .min = 1},
      {.key = "Nm", .member = &ManSample::mode, .doc = "'Quoted' first."},
      {.key = "list", .member = &ManSample::list, .doc = "Words.", .choices = {"a", "b"}},
      {.key = "must", .member = &ManSample::mode, .doc = "Needed.", .required = true}};
  ManSample sample;
  ConfigSchema schema;
  schema.section("one", "The first section.", sample, kFields);
  schema.section("one.two", "The second section.", sample, kFields);
  return schema.reference();
}

std::string rendered(const std::string& page, const char* mode) {
  const std::string path = ::testing::TempDir() + "ms_man_test.mdoc";
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) throw std::runtime_error(path);
  std::fputs(page.c_str(), file);
  std::fclose(file);
  SubprocessResult result = run_subprocess({"mandoc", mode, "-Wwarning", "-Owidth=100", path});
  std::remove(path.c_str());
  // Bold and underline are printed over the letter.
  std::string text;
  for (const char c : result.out) {
    if (c == '\b') {
      text.pop_back();
    } else {
      text += c;
    }
  }
  return text + result.err;
}

TEST(Man, PagesPassTheLint) {
  if (std::system("command -v mandoc >/dev/null") != 0) GTEST_SKIP() << "mandoc is not installed";
  Tool plain{.name = "ms-plain", .summary = "has almost nothing", .commands = {}};
  plain.commands = {{.name = "go", .summary = "go", .run = [](const Args&) { return 0; }}};
  plain.exit_status = {{0, "All is well."}, {2, "Critical."}};
  plain.environment = {{"MS_FAULT", "Breaks it."}};
  const man::TopicPage topic{
      .name = "ms-things",
      .summary = "things",
      .description = "There are things. They have names.",
      .sections = {{"the first", "", {{"a.b", "One.\n\n    -x\n    \n\nTwo."}, {".c", "    Three."}}},
                   {"empty", "Text.", {}}},
      .see_also = {"ms-sample(1)"}};
  const struct {
    const char* name;
    std::string page;
  } rows[] = {{"tool", man::tool_page(sample_tool())},
              {"plain tool", man::tool_page(plain)},
              {"config", man::config_page(sample_page(), sample_rows())},
              {"topic", man::topic_page(topic)},
              {"exit", man::exit_page()}};
  for (const auto& row : rows) EXPECT_EQ(rendered(row.page, "-Tlint"), "") << row.name << "\n" << row.page;
  EXPECT_NE(rendered(".Dd nothing\n.Foo\n", "-Tlint"), "") << "the lint bites";
}

TEST(Man, PagesSayWhatTheTablesSay) {
  if (std::system("command -v mandoc >/dev/null") != 0) GTEST_SKIP() << "mandoc is not installed";
  const std::string tool = rendered(man::tool_page(sample_tool()), "-Tascii");
  for (const char* part :
       {"ms-sample - shows what a table of commands can do",
        "ms-sample inspect [--json] [--rate N] [--wait TIME] [--set KEY=VALUE ...] [--out FILE] FIRST", "[MORE ...]",
        "A first sentence.  A second one.", ".A paragraph that starts with a dot and a \\ backslash.",
        "Show what files hold.", "-r, --rate N", "The default is `4'.", "May be given several times.", "MS_LOG",
        "Storage failed.", "ms-sample inspect --json 'a b' \"c\"", "ms-ckpt(1), ms-train(1), ms.toml(5), ms-exit(7)"}) {
    EXPECT_THAT(tool, HasSubstr(part));
  }
  const std::string config = rendered(man::config_page(sample_page(), sample_rows()), "-Tascii");
  for (const char* part : {"[one]", "[one.two]", "size (size)", "How large.  Second sentence.",
                           "Range: at least 1 bytes.", "The default is `\"1MiB\"'.", "Nm (string)",
                           "`\"\\\"odd\\\" \\\\ default\"'", "'Quoted' first.", "One of a, b.", "Required."}) {
    EXPECT_THAT(config, HasSubstr(part));
  }
  const std::string sample = man::sample_config(sample_page(), sample_rows());
  for (const char* part : {"\n# The first section.\n[one]\n", "\n[one.two]\n", "\n#size = \"1MiB\"\n", "One of a, b.",
                           "\n# How large. Second sentence. Range: at least 1 bytes.\n", "\n#must = ...\n"}) {
    EXPECT_THAT(sample, HasSubstr(part));
  }
  const std::string exit = rendered(man::exit_page(), "-Tascii");
  EXPECT_THAT(exit, HasSubstr("75 (stopped)"));
  EXPECT_THAT(exit, HasSubstr("Requeue."));
}

}  // namespace
}  // namespace ms
