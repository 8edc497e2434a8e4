// What the driver reads of other programs' checks: ms-netcheck, ms-train check, ms-diag.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "driver/findings.h"
#include "driver/flight.h"
#include "driver/netcheck.h"
#include "driver/run_events.h"
#include "driver/shrink.h"
#include "driver/suspects.h"
#include "support/files.h"

namespace ms::driver {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

// A directory with programs that stand in for others.
class Checks : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_);
    setenv("PATH", (dir_ + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(dir_);
  }
  std::string program(const std::string& name, const std::string& script) {
    const std::string path = dir_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  template <class F>
  auto when_there(F&& f) {
    for (int i = 0; i < 500; ++i) {
      if (auto value = f()) return value;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return decltype(f()){};
  }
  struct Line : std::string {
    friend std::istream& operator>>(std::istream& from, Line& line) { return std::getline(from, line); }
  };
  const std::string dir_ = fmt::format("{}/checks-{}", testing::TempDir(), getpid()), path_ = std::getenv("PATH");
};

constexpr const char* kDocument = R"({
  "verdict": [
    {"kind": "node", "nodes": ["n2"], "symptoms": ["silent", "loss"], "evidence": "loses 20 % of what it sends", "confidence": 0.9},
    {"kind": "node", "nodes": ["n3"], "symptoms": ["loss"], "evidence": "perhaps", "confidence": 0.5},
    {"kind": "node", "nodes": ["n5"], "symptoms": ["silent"], "evidence": "no connection", "confidence": 1.0},
    {"kind": "node", "nodes": ["n6"], "symptoms": ["bandwidth", "latency"], "evidence": "slow", "confidence": 1.0},
    {"kind": "link", "nodes": ["n1", "n4"], "symptoms": ["bandwidth"], "evidence": "slow", "confidence": 0.9},
    {"kind": "link", "nodes": ["n7", "n8"], "symptoms": ["loss"], "evidence": "loses 5 %", "confidence": 0.9}
  ],
  "pairs": [{"a": "n1", "b": "n2"}, {"a": "n3", "b": "n4"}, {"a": "n5", "b": "n6"}, {"a": "n7", "b": "n8"},
            {"a": "n9", "b": "n10", "error": "no connection"}]
}
)";

TEST(NetworkFound, AccusesNodesThatAreSurelyAtFaultAndClearsThoseOfWhichNothingWasSeen) {
  for (const std::string& text :
       {std::string(kDocument), std::string("srun: step created\n") + kDocument + "srun: done\n"}) {
    const auto found = network_found(text);
    ASSERT_TRUE(found) << text;
    ASSERT_EQ(found->faults.size(), 1U);
    EXPECT_EQ(found->faults[0].node, "n2");
    EXPECT_EQ(found->faults[0].why, "loses 20 % of what it sends");
    // n3 may be at fault, n5 said nothing, one of n7 and n8 may be, n9 and n10 were not measured.
    EXPECT_THAT(found->clear, testing::UnorderedElementsAre("n1", "n4", "n6"));
  }
  EXPECT_THAT(network_found("{\n  \"verdict\": [], \"pairs\": []\n}\n")->faults, IsEmpty());
  for (const char* text :
       {"", "srun: error\n", "{\n", "{\n}\n", "{\n  \"verdict\": 1, \"pairs\": []\n}\n", "{\n  \"verdict\": []\n}\n",
        "{\n  \"verdict\": [{\"nodes\": [\"n1\"]}], \"pairs\": []\n}\n", "\n}\n{\n"}) {
    EXPECT_FALSE(network_found(text)) << text;
  }
}

TEST_F(Checks, TheNetworkIsLookedAtByTwoNodesOrMore) {
  NetworkCheck check(
      program("ms-netcheck", "echo \"$@\" >\"$0.args\"\necho words\ncat <<'E'\n" + std::string(kDocument) + "E"), dir_);
  check.begin({"n1"}, 1, 0);
  EXPECT_FALSE(check.busy());
  check.begin({"n1", "n2"}, 1, 0);
  EXPECT_TRUE(check.looks_at("n2"));
  EXPECT_FALSE(check.looks_at("n3"));
  const auto result = when_there([&] { return check.take(1); });
  ASSERT_TRUE(result);
  EXPECT_FALSE(check.looks_at("n2")) << "it has ended";
  EXPECT_THAT(result->nodes, ElementsAre("n1", "n2"));
  ASSERT_TRUE(result->found);
  EXPECT_EQ(result->found->faults.at(0).node, "n2");
  std::string arguments;
  std::getline(std::ifstream(dir_ + "/ms-netcheck.args"), arguments);
  EXPECT_THAT(arguments, testing::HasSubstr("locate --nodes n[1-2] --json"));
  EXPECT_THAT(arguments, testing::HasSubstr("--max-rate 1"));
}

TEST_F(Checks, OfTheNetworkThatDoNotEndAreGivenUp) {
  NetworkCheck check(program("ms-netcheck", "exec sleep 100"), dir_);
  check.begin({"n1", "n2", "n3"}, NetworkCheck::kAsFastAsItGoes, 0);
  EXPECT_FALSE(check.take(119));
  const auto result = check.take(121);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->found);
  EXPECT_FALSE(check.busy());
}

TEST(Flight, FilesAreThoseOfTheAttempt) {
  const auto named = [](const char* wanted) {
    return flight_prefix([=](const char* name) { return std::string_view(name) == wanted ? "/x/fr_" : nullptr; });
  };
  EXPECT_EQ(named("TORCH_FR_DUMP_TEMP_FILE"), "/x/fr_");
  EXPECT_EQ(named("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), "/x/fr_");
  EXPECT_EQ(named("HOME"), "");
  const std::string dir = fmt::format("{}/flight-{}", testing::TempDir(), getpid());
  fs::create_directories(dir + "/fr_directory");
  for (const char* name : {"/fr_0", "/fr_1", "/other_0"}) std::ofstream(dir + name) << "x";
  EXPECT_THAT(flight_files(dir + "/fr_", 0), ElementsAre(dir + "/fr_0", dir + "/fr_1"));
  EXPECT_THAT(flight_files(dir + "/fr_", 4e9), IsEmpty());
  EXPECT_THAT(flight_files("", 0), IsEmpty());
  EXPECT_THAT(flight_files("fr_", 0), IsEmpty()) << "whose directory is not known here";
  // Not the attempt's: links, and second names of files.
  fs::create_symlink(dir + "/other_0", dir + "/fr_2");
  fs::create_hard_link(dir + "/other_0", dir + "/fr_3");
  EXPECT_THAT(flight_files(dir + "/fr_", 0), ElementsAre(dir + "/fr_0", dir + "/fr_1"));
  fs::remove_all(dir);
}

TEST(Flight, FilesOfAnotherUserDoNotCount) {
  if (geteuid() != 0) GTEST_SKIP() << "a second user takes root";
  const test::TempDir dir;
  for (const char* name : {"fr_0", "fr_1", "fr_2"}) test::spill(dir / name, "x");
  constexpr uid_t kUser = 65534, kOther = 65533;
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  ASSERT_EQ(chown((dir / "fr_1").c_str(), kUser, kUser), 0);
  ASSERT_EQ(chown((dir / "fr_2").c_str(), kOther, kOther), 0);
  EXPECT_THAT(flight_files(dir / "fr_", 0), ElementsAre(dir / "fr_0"));
  ASSERT_EQ(seteuid(kUser), 0);
  const std::vector<std::string> files = flight_files(dir / "fr_", 0);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_THAT(files, ElementsAre(dir / "fr_0", dir / "fr_1")) << "root's count";
}

TEST(Flight, VerdictsAreReadFromWhatMsTraceppPrints) {
  const std::string suspect =
      R"({"rank": 3, "host": "n2.site", "reason": "not_issuing", "fault": "host", "confidence": 0.9, "group": null})";
  const auto verdict =
      read_hang_verdict("{\n  \"sentence\": \"rank 3 never came\", \"suspects\": [" + suspect + "]\n}\n");
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 3);
  EXPECT_EQ(verdict->host, "n2.site");
  EXPECT_EQ(verdict->why, "rank 3 never came");
  EXPECT_EQ(verdict->fault, HangFault::node);
  EXPECT_TRUE(verdict->is_sure());
  for (const char* text : {"", "ms-tracepp: error\n", "{\n  \"sentence\": \"\", \"suspects\": []\n}\n", "{\n}\n",
                           "{\n  \"sentence\": \"\", \"suspects\": [1]\n}\n"}) {
    EXPECT_FALSE(read_hang_verdict(text)) << text;
  }
}

// What ms-tracepp says of two gloo ranks of PyTorch 2.15, without their members; and with other words in it.
TEST(Flight, RanksThatCallDifferentThingsAreAMismatchWhoeverIsRight) {
  const auto mismatch = [](const std::string& reason, double confidence, const std::string& group, bool is_guessed) {
    const auto verdict =
        read_hang_verdict(fmt::format("ms-tracepp: a line of its log\n"
                                      R"({{
  "schema": 1, "state": "hang",
  "sentence": "rank 0 called gloo:all_reduce 30 of group g where rank 1 called gloo:broadcast 30 of group g",
  "suspects": [{{"rank": 0, "file": "flight/rank_0", "dp": 0, "pp": 0, "tp": 0, "host": "", "pid": 0,
    "reason": "{0}", "fault": "program", "confidence": {1}, "group": {2}, "doing": "finished gloo:all_reduce 29 of group default_pg 0"}}, {{
    "rank": 1, "file": "flight/rank_1", "dp": 0, "pp": 0, "tp": 0, "host": "", "pid": 0,
    "reason": "{0}", "fault": "program", "confidence": {1}, "group": {2}, "doing": "finished gloo:all_reduce 29 of group default_pg 0"}}],
  "groups": [{{"group": "default_pg 0", "axis": "world", "is_guessed": {3}, "sequence": 30,
    "match": "collective_type_mismatch", "since_s": 5.013, "num_members": 2, "num_waiting": 2}}]
}}
)",
                                      reason, confidence, group, is_guessed));
    EXPECT_TRUE(verdict);
    return verdict && verdict->fault == HangFault::mismatch;
  };
  for (const char* reason : {"wrong_kind", "wrong_size", "wrong_dtype", "missing_call", "extra_call"}) {
    EXPECT_TRUE(mismatch(reason, 0.5, "0", false)) << reason;
    EXPECT_FALSE(mismatch(reason, 0.5, "0", true)) << reason << ": they may be of different groups";
  }
  for (const char* reason : {"not_issuing", "no_trace", "transfer", "compute", "failed", "silent", "waits_alone"}) {
    EXPECT_FALSE(mismatch(reason, 0.95, "0", false)) << reason;
  }
  EXPECT_TRUE(mismatch("wrong_order", 0.85, "0", false));
  EXPECT_FALSE(mismatch("wrong_order", 0.5, "0", false)) << "one of them may have stopped with messages under way";
  EXPECT_FALSE(mismatch("wrong_kind", 0.7, "null", false)) << "sources without a group that are not sure";
}

TEST(RunSizes, AreWhatMsTrainSays) {
  const auto sizes = read_run_sizes(R"({"schema":1,"dp":6,"auto":true,"replica_ranks":8,"allowed_dp":[1,2,6]})");
  ASSERT_TRUE(sizes);
  EXPECT_TRUE(sizes->is_auto);
  EXPECT_EQ(sizes->dp, 6);
  EXPECT_EQ(sizes->replica, 8);
  EXPECT_THAT(sizes->allowed, ElementsAre(1, 2, 6));
  for (const char* text : {"", "{}", R"({"dp":6,"auto":true,"replica_ranks":0,"allowed_dp":[1]})",
                           R"({"dp":6,"auto":true,"replica_ranks":1,"allowed_dp":[]})",
                           R"({"dp":6,"auto":true,"replica_ranks":1,"allowed_dp":["x"]})"}) {
    EXPECT_FALSE(read_run_sizes(text)) << text;
  }
}

TEST(RunSpeeds, AreToldByTheNodesOfTheJob) {
  const auto read = read_run_sizes(
      R"({"dp":6,"auto":true,"replica_ranks":4,"allowed_dp":[2,4,6],"speed_up":[{"dp":2,"tokens_per_s":1400.26},
          {"dp":4,"tokens_per_s":2.7e6},{"dp":6,"tokens_per_s":0}]})");
  ASSERT_TRUE(read);
  const std::map<int, double>& speeds = read->speeds;
  EXPECT_EQ(speeds.size(), 3U);
  const RunSizes sizes{.replica = 4, .allowed = {2, 4, 6}};
  EXPECT_EQ(speeds_text(sizes, speeds, 0, 6, 4), ", speeds 2:1400,4:2.7e+06");
  EXPECT_EQ(speeds_text(sizes, speeds, 1, 4, 4), ", speeds 3:1400");
  EXPECT_EQ(speeds_text(sizes, {}, 0, 6, 4), "");
  EXPECT_FALSE(read_run_sizes(R"({"dp":6,"auto":true,"replica_ranks":4,"allowed_dp":[2],"speed_up":[{"dp":2}]})"));
  RunSizes many{.replica = 1};
  std::map<int, double> all;
  for (int dp = 1; dp <= 1000; ++dp) {
    many.allowed.push_back(dp);
    all[dp] = 1e15 * dp;
  }
  const std::string text = speeds_text(many, all, 0, 1000, 1);
  EXPECT_EQ(std::ranges::count(text, ':'), 24);
  EXPECT_THAT(text, testing::StartsWith(", speeds 1:1e+15,"));
  EXPECT_THAT(text, testing::EndsWith(",1000:1e+18"));
  EXPECT_LT(text.size(), 400U);
}

TEST(LargestFit, TakesTheMostNodesThatAllHaveWork) {
  const std::vector<int> all{1, 2, 3, 4, 5, 6}, even{2, 4, 6};
  struct Case {
    int replica;
    std::vector<int> allowed;
    std::size_t nodes;
    int tasks;
    std::size_t want_nodes;
    int want_dp;
  };
  for (const Case& c : {Case{1, all, 3, 1, 3, 3}, Case{1, even, 3, 1, 2, 2}, Case{4, all, 3, 4, 3, 3},  // one a node
                        Case{8, all, 7, 4, 6, 3},     // a replica on two nodes
                        Case{2, all, 3, 4, 3, 6}}) {  // two replicas on a node
    const auto fit = largest_fit({.replica = c.replica, .allowed = c.allowed}, c.nodes, c.tasks);
    ASSERT_TRUE(fit);
    EXPECT_EQ(fit->nodes, c.want_nodes);
    EXPECT_EQ(fit->dp, c.want_dp);
  }
  EXPECT_FALSE(largest_fit({.replica = 4, .allowed = all}, 0, 4));
  EXPECT_FALSE(largest_fit({.replica = 8, .allowed = all}, 1, 4)) << "a replica needs two nodes";
  EXPECT_FALSE(largest_fit({.replica = 1, .allowed = {8}}, 3, 1));
  EXPECT_EQ(smallest_fit({.replica = 1, .allowed = even}, 8, 1)->nodes, 2U);
  EXPECT_FALSE(smallest_fit({.replica = 1, .allowed = {8}}, 3, 1));
}

TEST_F(Checks, EventsOfARunAreSentByAnotherProgramUntilAllKnow) {
  // The first attempt to send fails, and the program says what it was asked.
  const std::string diag =
      program("ms-diag", "echo \"$@\" >>" + dir_ + "/asked; mkdir " + dir_ + "/tried && exit 1; exit 0");
  fs::create_directories(dir_ + "/driver");
  RunEvents events(dir_, diag, dir_ + "/notify.toml");
  const auto asked = [&] {
    std::ifstream file(dir_ + "/asked");
    return std::vector<std::string>(std::istream_iterator<Line>(file), {});
  };
  events.send(0);
  EXPECT_THAT(asked(), IsEmpty()) << "there is nothing to tell";
  events.add({.wall_s = 1e9, .kind = "run-interrupted", .node = "n2", .code = "hang", .message = "", .job_id = 77});
  SystemClock clock;
  const double now_s = clock.now_s();
  events.send(now_s);
  events.finish(clock);
  EXPECT_THAT(asked(), ElementsAre("notify --once --run " + dir_ + " --config " + dir_ + "/notify.toml"));
  events.send(clock.now_s() + 1);
  EXPECT_EQ(asked().size(), 1U) << "whom it could not reach is asked again in a minute";
  events.send(clock.now_s() + 100);
  events.finish(clock);
  EXPECT_EQ(asked().size(), 2U);
  events.send(clock.now_s() + 1000);
  EXPECT_EQ(asked().size(), 2U) << "all know";
  EXPECT_EQ(health::spooled_events(dir_ + "/driver/events").size(), 1U);

  RunEvents silent(dir_, diag, "");
  silent.add({.wall_s = 1e9, .kind = "run-ended", .node = "", .code = "code 0", .message = "done", .job_id = 77});
  silent.send(1e6);
  silent.finish(clock);
  EXPECT_EQ(asked().size(), 2U);
}

TEST_F(Checks, TheSizesOfARunAreAskedOfMsTrain) {
  const std::string train = program("ms-train", R"(echo "$@" >>"$0.args"
echo '{"schema":1,"dp":4,"auto":false,"replica_ranks":1,"allowed_dp":[1,2,4]}')");
  const auto sizes = ask_run_sizes({train, "run", "c.toml", "--fresh", "--set", "a=1"});
  ASSERT_TRUE(sizes);
  EXPECT_EQ(largest_fit(*sizes, 3, 1)->dp, 2);
  std::ifstream said(dir_ + "/ms-train.args");
  std::string line;
  std::getline(said, line);
  EXPECT_EQ(line, "check c.toml --set a=1 --no-files --json");
  EXPECT_FALSE(ask_run_sizes({program("ms-train", "exit 2"), "run", "c.toml"}));
}

constexpr const char* kCritical = R"({
  "schema": 1,
  "findings": [
    {"code": "gpu.ecc", "severity": "critical", "entity": "gpu 3", "message": "4 errors"},
    {"code": "host.clock", "severity": "warning", "entity": "clock", "message": "not synchronised"}
  ]
}
)";

TEST(CriticalFinding, IsReadFromAReportOfMsDiagWhateverIsAroundIt) {
  EXPECT_EQ(critical_finding(kCritical), "gpu.ecc gpu 3: 4 errors");
  EXPECT_EQ(critical_finding("srun: words\n" + std::string(kCritical) + "srun: error: Exited with exit code 2\n"),
            "gpu.ecc gpu 3: 4 errors");
  for (const char* text : {"", "srun: error: ms-diag: No such file", "{\n}\n", "{\n  \"findings\": []\n}\n",
                           "{\n  \"findings\": [{\"severity\": \"critical\"}]\n}\n",
                           "{\n  \"findings\": [{\"severity\": \"warning\", \"code\": \"a\", \"entity\": \"b\", "
                           "\"message\": \"c\"}]\n}\n"}) {
    EXPECT_FALSE(critical_finding(text)) << text;
  }
}

TEST_F(Checks, AnAgentLooksAtItsNodeAgainAndAgain) {
  NodeHealth health(program("ms-diag", "echo \"$@\" >\"$0.args\"\n[ -e \"$0.mended\" ] || cat <<'E'\n" +
                                           std::string(kCritical) + "E\nexit 2"),
                    0.01);
  EXPECT_TRUE(when_there([&] { return health.finding() == "gpu.ecc gpu 3: 4 errors"; }));
  std::ofstream(dir_ + "/ms-diag.mended") << "";
  EXPECT_TRUE(when_there([&] { return health.finding().empty(); }));
  std::string arguments;
  std::getline(std::ifstream(dir_ + "/ms-diag.args"), arguments);
  EXPECT_EQ(arguments, "run --level 1 --json");
  EXPECT_EQ(NodeHealth(dir_ + "/none", 0).finding(), "") << "0: no look, and no thread that could be waited for";
}

TEST_F(Checks, OfANodeAccuseItByWhatTheySayAndNotByTheirStatusAlone) {
  // srun stands in for itself: it prints what ms-diag would.
  program("srun",
          "while [ \"$1\" != ms-diag ]; do node=$1; shift; done\ncase \"$node\" in *n1) cat <<'E'\n" +
              std::string(kCritical) +
              "E\n;; *n2) echo 'error: execve(): ms-diag: No such file or directory' >&2 ;;\n"
              "*n3) printf '{\\n  \"findings\": [\\n'; echo 'srun: error: n3: task 0: Exited with exit code 1' >&2; "
              "printf ']\\n}\\n' ;; esac\nexit 2");
  Suspects suspects("ms-diag", dir_);
  for (const char* node : {"n1", "n2", "n1", "n3", "n4"}) suspects.look(node, 2);
  std::vector<Checkup> found;
  when_there([&] {
    for (Checkup& checkup : suspects.take()) found.push_back(std::move(checkup));
    return !suspects.busy();
  });
  ASSERT_EQ(found.size(), 4U);
  std::ranges::sort(found, {}, &Checkup::node);
  EXPECT_FALSE(found[0].well);
  EXPECT_EQ(found[0].said, "gpu.ecc gpu 3: 4 errors");
  EXPECT_TRUE(found[1].well) << "there is no ms-diag, and srun ends with its status";
  EXPECT_EQ(found[1].said, "was not checked: no ms-diag");
  EXPECT_EQ(found[2].said, "is found well");
  EXPECT_TRUE(found[3].well);
  EXPECT_EQ(found[3].said, "was not checked: no report of ms-diag");
}

TEST_F(Checks, OfNodesThatAreNoLongerWantedEndAndSayNothing) {
  program("srun", "while [ \"$1\" != ms-diag ]; do node=$1; shift; done\necho >>\"" + dir_ +
                      "/asked${node##*=}\"\n"
                      "case \"$node\" in *n1) exec sleep 100 ;; esac\n");
  Suspects suspects("ms-diag", dir_);
  for (const char* node : {"n1", "n2"}) suspects.look(node, 2);
  std::error_code none;
  const auto asked = [&](std::uintmax_t times) { return fs::file_size(dir_ + "/askedn1", none) == times; };
  EXPECT_TRUE(when_there([&] { return asked(1); }));
  suspects.keep([](const std::string& node) { return node != "n1"; });
  std::vector<Checkup> found;
  EXPECT_TRUE(when_there([&] { return !(found = suspects.take()).empty(); }));
  EXPECT_EQ(found.at(0).node, "n2");
  EXPECT_FALSE(suspects.busy());
  // The next check of the node begins once the earlier one has ended.
  EXPECT_TRUE(when_there([&] {
    suspects.look("n1", 2);
    EXPECT_THAT(suspects.take(), IsEmpty());
    return asked(2);
  }));
  suspects.stop();
}

}  // namespace
}  // namespace ms::driver
