// The one answer that fails a prolog, and the many that do not; the words and lines that come from outside.
#include "around_job.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "preflight.h"
#include "printable.h"
#include "settings.h"
#include "slurm/job_env.h"
#include "slurm/plugstack.h"
#include "support.h"
#include "tell_user.h"

namespace ms::spank {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string& logged() {
  static std::string lines;
  return lines;
}
void to_test(const char* line) { logged() += std::string(line) + "\n"; }

class AroundJobTest : public SpankTest {
 protected:
  void SetUp() override {
    SpankTest::SetUp();
    logged().clear();
    config = file("ms-diag.toml", "");
  }
  bool fails(const std::string& commands, When when = When::prolog, double deadline_s = 30) const {
    return must_fail(
        {.when = when, .program = script(commands), .config = config, .deadline_s = deadline_s, .preflight = "on"},
        to_test);
  }
  std::string config;
};

TEST_F(AroundJobTest, OnlyExitStatus69OfAPrologFails) {
  for (int status = 0; status < 256; ++status) {
    ASSERT_EQ(fails("exit " + std::to_string(status)), status == 69) << status;
    EXPECT_EQ(logged().empty(), status == 0) << status;
    logged().clear();
  }
  EXPECT_FALSE(fails("exit 69", When::epilog));
}

TEST_F(AroundJobTest, WhateverElseHappensTheJobStarts) {
  for (const char* commands :
       {"kill -KILL $$", "kill -SEGV $$", "kill -69 $$", "exec /nonexistent", "exec sleep 100", "yes"}) {
    logged().clear();
    EXPECT_FALSE(fails(commands, When::prolog, 0.2)) << commands;
    EXPECT_THAT(logged(), HasSubstr("the job starts without a check")) << commands;
  }
}

TEST_F(AroundJobTest, WhatCannotBeTrustedIsNotRun) {
  const std::string ran = folder + "/ran";
  const std::string program = file("program", "#!/bin/sh\ntouch " + ran + "\nexit 69\n", 0777);
  const std::string good = script("touch " + ran + "; exit 69");
  EXPECT_FALSE(must_fail({.program = program, .config = config, .deadline_s = 30, .preflight = ""}, to_test));
  EXPECT_FALSE(
      must_fail({.program = folder + "/missing", .config = config, .deadline_s = 30, .preflight = ""}, to_test));
  EXPECT_FALSE(must_fail({.program = good, .config = folder + "/missing", .deadline_s = 30, .preflight = ""}, to_test));
  chmod(config.c_str(), 0666);
  EXPECT_FALSE(must_fail({.program = good, .config = config, .deadline_s = 30, .preflight = ""}, to_test));
  EXPECT_NE(access(ran.c_str(), F_OK), 0);
  chmod(config.c_str(), 0644);
  EXPECT_TRUE(must_fail({.program = good, .config = config, .deadline_s = 30, .preflight = ""}, to_test));
  EXPECT_EQ(access(ran.c_str(), F_OK), 0);
}

TEST_F(AroundJobTest, TheProgramIsToldTheJobAndNothingOfTheUsers) {
  const std::pair<const char*, const char*> variables[] = {{"SLURM_JOB_ID", "17"},      {"SLURMD_NODENAME", "node02"},
                                                           {"SLURM_JOB_NAME", "x; rm"}, {"SPANK_MS_PREFLIGHT", "off"},
                                                           {"MS_PREFLIGHT", "off"},     {"LD_LIBRARY_PATH", "/tmp"}};
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  const bool failed = fails("{ echo \"$*\"; env; } | grep -v ^PWD= | sort > " + folder + "/seen; exit 0");
  for (const auto& [name, value] : variables) unsetenv(name);
  EXPECT_FALSE(failed);
  EXPECT_EQ(text_of("seen"),
            "MS_PREFLIGHT=on\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nSLURMD_NODENAME=node02\nSLURM_JOB_ID=17\n"
            "prolog --config " +
                config + "\n");
}

// What the plugin hands over is what ms-diag reads; they are two lists because the plugin shares no code with it.
TEST_F(AroundJobTest, ThePluginPassesOnWhatMsDiagReads) {
  std::vector<std::string> names = slurm::job_env_names();
  for (const std::string& name : names) setenv(name.c_str(), "1", 1);
  std::vector<std::string> passed;
  const AroundJob job{.when = When::epilog, .program = {}, .config = {}, .preflight = "on", .tasks_killed = true};
  for (const std::string& pair : environment_for(job)) passed.push_back(pair.substr(0, pair.find('=')));
  for (const std::string& name : names) unsetenv(name.c_str());
  names.push_back("PATH");
  EXPECT_THAT(passed, testing::UnorderedElementsAreArray(names));
}

TEST_F(AroundJobTest, FindsTheProgramInABuildAndAnInstallation) {
  for (const char* own : {"lib", "lib/x86_64-linux-gnu", "libexec/ms", "usr/lib/x86_64-linux-gnu/slurm"}) {
    const std::string root = folder + "/" + std::string(own).substr(0, 3) + std::to_string(std::string(own).size());
    const std::string bin = root + (std::string_view(own).starts_with("usr") ? "/usr/bin" : "/bin");
    std::filesystem::create_directories(root + "/" + own);
    std::filesystem::create_directories(bin);
    std::ofstream(bin + "/ms-diag") << "";
    EXPECT_EQ(std::filesystem::weakly_canonical(find_program(root + "/" + own)).string(), bin + "/ms-diag") << own;
  }
  EXPECT_THAT(find_program(folder), HasSubstr("ms-diag"));  // to be named in the log
}

TEST(Preflight, OnlyOurWordsAreValues) {
  for (const char* word : {"on", "off", "require"}) {
    EXPECT_EQ(preflight_of_option(word), word);
    EXPECT_EQ(preflight_of_variable(word), word);
  }
  for (const char* absent : {static_cast<const char*>(nullptr), "", "(null)"}) {
    EXPECT_EQ(preflight_of_option(absent), "on");
    EXPECT_EQ(preflight_of_variable(absent), "");
  }
  for (const char* wrong : {"ON", "on ", " off", "off\n", "offf", "require;reboot", "\xff", "%n", "1"}) {
    EXPECT_EQ(preflight_of_option(wrong), "") << wrong;
    EXPECT_EQ(preflight_of_variable(wrong), "") << wrong;
  }
}

// The word as ms-diag knows it. A new one has to be put here: the compiler says so.
std::string_view word_of(slurm::Preflight preflight) {
  switch (preflight) {
    case slurm::Preflight::by_default: return "";
    case slurm::Preflight::on: return "on";
    case slurm::Preflight::off: return "off";
    case slurm::Preflight::require: return "require";
  }
  return "?";
}

// The words are two lists too.
TEST(Preflight, MsDiagKnowsThePluginsWords) {
  std::vector<std::string_view> words;
  for (std::string_view word : kPreflightWords) {
    const auto preflight = slurm::parse_preflight(word);
    ASSERT_TRUE(preflight) << word;
    EXPECT_EQ(word_of(*preflight), word);
    words.push_back(word);
  }
  EXPECT_THAT(words, testing::UnorderedElementsAre(word_of(slurm::Preflight::on), word_of(slurm::Preflight::off),
                                                   word_of(slurm::Preflight::require)));
}

Settings settings_of(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return read_settings(static_cast<int>(pointers.size()), pointers.data());
}

TEST(PluginSettings, AreRead) {
  Settings settings = settings_of({"config=/etc/ms/a.toml"});
  EXPECT_EQ(settings.problem, "");
  EXPECT_EQ(settings.config, "/etc/ms/a.toml");
  EXPECT_EQ(settings.program, "");
  EXPECT_EQ(settings.notes, "/run/ms-diag");
  EXPECT_EQ(settings.deadline_s, slurm::kPluginDeadline_s);  // what check-site takes it for
  settings = settings_of({"deadline=7", "notes=/run/n", "program=/opt/ms/bin/ms-diag", "config=/a=b"});
  EXPECT_EQ(settings.problem, "");
  EXPECT_EQ(settings.config, "/a=b");
  EXPECT_EQ(settings.program, "/opt/ms/bin/ms-diag");
  EXPECT_EQ(settings.notes, "/run/n");
  EXPECT_EQ(settings.deadline_s, 7);
}

TEST(PluginSettings, MistakesAreNamed) {
  struct Row {
    std::vector<std::string> arguments;
    const char* problem;
  };
  for (const Row& row :
       {Row{{}, "config=FILE is missing"}, Row{{"deadline=5"}, "config=FILE is missing"},
        Row{{"config"}, "config wants an absolute path"}, Row{{"config="}, "config wants an absolute path"},
        Row{{"config=ms.toml"}, "not 'ms.toml'"}, Row{{"config=/a", "program=ms-diag"}, "program wants"},
        Row{{"config=/a", "deadline=0"}, "deadline wants"}, Row{{"config=/a", "deadline=601"}, "1 to 600"},
        Row{{"config=/a", "deadline=5s"}, "not '5s'"}, Row{{"config=/a", "deadline=-1"}, "deadline wants"},
        Row{{"config=/a", "deadline="}, "deadline wants"}, Row{{"config=/a", "deadline=99999999999"}, "deadline"},
        Row{{"config=/a", "colour=blue"}, "unknown argument 'colour=blue'"}, Row{{"config=/a", ""}, "unknown"},
        Row{{"CONFIG=/a"}, "unknown argument"}, Row{{"config=/a", "\033[31m"}, "'?[31m'"}}) {
    EXPECT_THAT(settings_of(row.arguments).problem, HasSubstr(row.problem));
  }
}

TEST(Printable, KeepsOnlyWhatATerminalMayShow) {
  EXPECT_EQ(printable("plain text"), "plain text");
  EXPECT_EQ(printable("two\nlines\r\n"), "two | lines");
  EXPECT_EQ(printable("a\033[31m\x07\xc3\xa4%s\t."), "a?[31m???%s?.");
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

TEST(TellUser, EveryNodeTellsOnce) {
  EXPECT_TRUE(is_told_here({.is_batch_step = true, .has_script = true, .on_batch_host = true}));
  EXPECT_FALSE(is_told_here({.is_first_step = true, .has_script = true, .on_batch_host = true}));
  EXPECT_TRUE(is_told_here({.is_first_step = true, .has_script = true, .on_batch_host = false}));
  EXPECT_TRUE(is_told_here({.is_first_step = true, .has_script = false, .on_batch_host = true}));
  EXPECT_FALSE(is_told_here({.is_first_step = true, .local_task = 1}));
  EXPECT_FALSE(is_told_here({.is_first_step = false}));
}

TEST(TellUser, FirstHost) {
  for (const auto& [nodes, first] : {std::pair{"node02", "node02"},
                                     {"node[02-04,7]", "node02"},
                                     {"a[1,3]", "a1"},
                                     {"a,b", "a"},
                                     {"n[07]", "n07"},
                                     {"", ""},
                                     {"n[", "n"}}) {
    EXPECT_EQ(first_host(nodes), first);
  }
}

using NoteTest = SpankTest;

TEST_F(NoteTest, IsReadAsLines) {
  file("job-7", "node02 was drained:\n\nECC \033[31m\n");
  EXPECT_THAT(read_note(folder, 7), ElementsAre("node02 was drained:", "ECC ?[31m"));
  EXPECT_THAT(read_note(folder, 8), IsEmpty());
  EXPECT_THAT(read_note(folder + "/missing", 7), IsEmpty());
}

TEST_F(NoteTest, IsNothingButAPlainFileOfRoots) {
  const auto lines = [&] { return read_note(folder, 7); };
  std::filesystem::create_symlink("/etc/passwd", folder + "/job-7");
  EXPECT_THAT(lines(), IsEmpty());
  std::filesystem::remove(folder + "/job-7");
  ASSERT_EQ(mkfifo((folder + "/job-7").c_str(), 0644), 0);  // would hang whoever opens it
  EXPECT_THAT(lines(), IsEmpty());
  std::filesystem::remove(folder + "/job-7");
  file("job-7", "x", 0666);
  EXPECT_THAT(lines(), IsEmpty());
  file("job-7", std::string(4097, 'x'), 0644);
  EXPECT_THAT(lines(), IsEmpty());
  file("job-7", std::string(4096, 'x'), 0644);
  EXPECT_THAT(lines(), ElementsAre(std::string(4096, 'x')));
  if (geteuid() == 0) {
    ASSERT_EQ(chown((folder + "/job-7").c_str(), 65534, 65534), 0);
    EXPECT_THAT(lines(), IsEmpty());
  }
}

}  // namespace
}  // namespace ms::spank
