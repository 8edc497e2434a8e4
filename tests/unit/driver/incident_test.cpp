// What the files of a run tell of its incidents, and the page that shows them.
#include "driver/incident.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "driver/attempt.h"
#include "health/act/spool.h"

namespace ms::driver {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr double kBegan_s = 1'790'000'000, kFault_s = kBegan_s + 3000;

constexpr const char* kEvidence = R"({
  "schema": 1, "alarm": "no rank made progress for 30 s", "alarm_s": 1790003030,
  "lost": [], "died_on": [],
  "tasks": [{"node": "n3", "rank": 2, "step": 7, "pid": 9, "state": "D", "cpu": 0, "waits_in": "x", "stack": "ioctl"},
            {"node": "n1", "rank": 0, "step": 7, "pid": 9, "state": "S", "cpu": -1, "waits_in": "", "stack": "poll"}],
  "lines": [{"at_s": 1790003002, "node": "n3", "rank": 2, "cause": "gpu_xid", "outlived": false, "text": "Xid 79"},
            {"at_s": 1790002000, "node": "n3", "rank": 2, "cause": "exception", "outlived": true, "text": "caught"}]
})";
constexpr const char* kHangDocument = R"({
  "sentence": "rank 2 never called", "collect": "stacks", "evidence": ["rank 2: at forward"],
  "suspects": [{"rank": 2, "host": "n3", "reason": "not_issuing", "confidence": 0.7, "doing": "a"},
               {"rank": null, "host": "", "reason": "silent", "confidence": 0.2, "doing": "b"}],
  "sources": [{"name": "NCCL's RAS", "stance": "agrees", "sentence": "one behind"},
              {"name": "stacks", "stance": "differs", "sentence": "<script>alert(1)</script>"}]
})";

std::string suspect(int rank, double confidence) {
  return fmt::format(R"({{"rank": {}, "host": "n3", "reason": "wrong_kind", "confidence": {}, "doing": "a"}})", rank,
                     confidence);
}

class IncidentTest : public testing::Test {
 protected:
  IncidentTest() {
    std::string pattern = testing::TempDir() + "incident-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    dir_ = pattern;
    std::filesystem::create_directories(files().events());
    ledger_.began_s = kBegan_s;
    AttemptEntry hung, next;
    hung.number = 1;
    hung.job = next.job = "12.0";
    hung.nodes = {"n1", "n2", "n3"};
    hung.began_s = kBegan_s;
    hung.first_step_s = kBegan_s + 20;
    hung.ended_s = kFault_s + 36;
    hung.from_step = 0;
    hung.to_step = 700;
    hung.cause = kHang;
    hung.suspects = {"n3"};
    hung.detect_s = 30;
    next.number = 2;
    next.nodes = {"n1", "n2", "n4"};
    next.began_s = kFault_s + 40;
    next.first_step_s = kFault_s + 70;
    next.from_step = 690;
    ledger_.attempts = {hung, next};
    ledger_.excluded["n3"] = "gpu.xid <b>";
    ledger_.notes = {{.at_s = kFault_s + 5, .code = "drain", .nodes = {"n2"}, .text = "n2 is drained"}};
  }
  ~IncidentTest() override { std::filesystem::remove_all(dir_); }

  DriverFiles files() const { return DriverFiles(dir_); }
  void put(const std::string& name, const std::string& text, double at_s = 0) const {
    const std::string path = files().dir + "/" + name;
    write_file_atomic(path, text);
    if (at_s == 0) return;
    const timespec time{.tv_sec = static_cast<time_t>(at_s), .tv_nsec = 0};
    const timespec times[2] = {time, time};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  Incident newest() const { return read_incidents(ledger_, files(), 1).at(0); }
  std::string page() const {
    return incident_page(ledger_, read_incidents(ledger_, files(), 9), "run", kFault_s + 100);
  }
  static std::vector<std::string> sources(const Incident& incident) {
    std::vector<std::string> names;
    for (const Moment& moment : incident.moments) names.push_back(moment.source + "/" + moment.node);
    return names;
  }

  std::string dir_;
  Ledger ledger_;
};

TEST_F(IncidentTest, JoinsWhatWasSeenToOneTimeAxis) {
  put("attempt-1.evidence.json", kEvidence);
  put("attempt-1.hang.json", kHangDocument);
  put("attempt-1.n3.stacks", "", kFault_s + 31);
  put("attempt-1.n1.devices", "", kFault_s + 32);
  put("attempt-1.ras.n2.1", "", kFault_s + 33);
  put("attempt-1.ras.n2.2", "", kFault_s + 34);
  put("check-n3.json",
      "{\n\"findings\": [{\"severity\": \"critical\", \"code\": \"gpu.xid\", \"entity\": \"gpu 3\", "
      "\"message\": \"79\"}]\n}\n",
      kFault_s + 50);
  health::spool_event(
      files().events(),
      {.wall_s = kFault_s + 36, .kind = "run-interrupted", .node = "n3", .code = "hang", .message = "m"});
  const Incident incident = newest();
  EXPECT_EQ(incident.alarm_s, kFault_s + 30);
  EXPECT_EQ(incident.fault_s, kFault_s);
  EXPECT_THAT(sources(incident),
              ElementsAre("heartbeats/", "output/n3", "Slurm/n2", "alarm/", "stacks/n3", "devices/n1", "NCCL's RAS/n2",
                          "driver/", "driver/", "driver/", "ms-diag/n3", "heartbeats/"));
  EXPECT_TRUE(std::ranges::is_sorted(incident.moments, {}, &Moment::at_s));
  ASSERT_THAT(incident.candidates, SizeIs(2));
  EXPECT_EQ(incident.candidates[0].who, "rank 2 on n3");
  EXPECT_EQ(incident.candidates[0].confidence, 0.7);
  EXPECT_EQ(incident.collect, "stacks");
  EXPECT_THAT(incident.claims, SizeIs(5));  // the alarm, a line, two sources, a check
  EXPECT_THAT(incident.ranks, SizeIs(2));
  EXPECT_THAT(incident.unread, IsEmpty());
  EXPECT_THAT(nodes_of(incident), ElementsAre("n1", "n2", "n3"));
}

// The driver's clock begins anywhere; the file has the time of day.
TEST_F(IncidentTest, ReadsTheEvidenceThatTheDriverWrites) {
  AttemptEvidence evidence;
  evidence.alarm = Alarm{.kind = AlarmKind::hang, .nodes = {}, .ranks = {}, .fault_s = 70, .why = "hangs"};
  evidence.lost = {"n2"};
  evidence.died_on = {"n1"};
  SaidLine line;
  line.known = known_line("CUDA out of memory");
  line.node = "n3";
  line.rank = 2;
  line.text = "CUDA out of memory";
  line.at_s = 75;
  evidence.lines = {line};
  put("attempt-1.evidence.json", evidence_json(evidence, 100, kFault_s - 70));
  const Incident incident = newest();
  EXPECT_THAT(incident.unread, IsEmpty());
  EXPECT_EQ(incident.alarm_s, kFault_s + 30);
  EXPECT_THAT(nodes_of(incident), ElementsAre("n2", "n3")) << "the driver has ended the rank of n1";
  const auto said = std::ranges::find(incident.moments, Sort::output, &Moment::sort);
  ASSERT_NE(said, incident.moments.end());
  EXPECT_EQ(said->at_s, kFault_s + 5);
  EXPECT_EQ(said->node, "n3");
  ledger_.attempts[0].cause = kWordless;
  EXPECT_THAT(nodes_of(newest()), ElementsAre("n1", "n2", "n3"));
}

// Texts of others are text on the page, and it asks for nothing from elsewhere.
TEST_F(IncidentTest, ThePageIsOneFileThatRunsNothing) {
  put("attempt-1.evidence.json", kEvidence);
  put("attempt-1.hang.json", kHangDocument);
  const std::string text = page();
  EXPECT_THAT(text, HasSubstr("&lt;script&gt;alert(1)"));
  for (const char* part : {"<script", "gpu.xid <b>", "http://", "https://", "src=", "@import", "url("})
    EXPECT_THAT(text, Not(HasSubstr(part)));
  EXPECT_THAT(text, HasSubstr("<svg class=\"axis\""));
}

TEST_F(IncidentTest, TwoThatAreEquallyLikelyBothStandInTheAnswer) {
  const auto num_answers = [&](double first, double second) {
    put("attempt-1.hang.json", fmt::format("{{\n\"sentence\": \"a\", \"collect\": \"\", \"evidence\": [], \"sources\": "
                                           "[], \"suspects\": [{}, {}]\n}}\n",
                                           suspect(2, first), suspect(1, second)));
    return split(page(), '%').size() - split(page().substr(page().find("</dl>")), '%').size();
  };
  const std::size_t none = num_answers(0.4, 0.4);
  EXPECT_EQ(num_answers(0.5, 0.5), none + 2);
  EXPECT_EQ(num_answers(0.7, 0.2), none + 1);
}

// Files that others wrote, cut or replaced, are named, and the rest is shown.
TEST_F(IncidentTest, WhatCannotBeReadIsNamed) {
  EXPECT_THAT(newest().claims, IsEmpty());  // the ledger alone
  EXPECT_THAT(page(), HasSubstr("<svg"));
  for (const char* text : {"{\n\"alarm\": ", "{\n\"alarm\": 3\n}\n", "", "[]"}) {
    put("attempt-1.evidence.json", text);
    EXPECT_THAT(newest().unread, SizeIs(1)) << text;
    put("attempt-1.hang.json", text);
    EXPECT_THAT(newest().unread, SizeIs(2)) << text;
    put("attempt-1.hang.json", kHangDocument);
    EXPECT_THAT(newest().candidates, SizeIs(2)) << text;
  }
  std::filesystem::remove(files().hang(1) + ".json");
  std::filesystem::create_symlink("/etc/passwd", files().hang(1) + ".json");
  EXPECT_THAT(newest().candidates, IsEmpty());
}

// A copied directory has the times of the copy, which are no moments of the incident.
TEST_F(IncidentTest, TimesOfACopyAreNoMoments) {
  put("attempt-1.n3.stacks", "", kFault_s + 86400);
  put("check-n3.json", "{\n}\n", kFault_s - 86400);
  EXPECT_THAT(sources(newest()), testing::Each(Not(testing::AnyOf(HasSubstr("stacks"), HasSubstr("ms-diag")))));
}

TEST_F(IncidentTest, ManyNodesWithOneMomentAreOne) {
  for (int i = 0; i < 200; ++i) put(fmt::format("attempt-1.m{}.stacks", i), "", kFault_s + 31);
  put("attempt-1.n3.stacks", "", kFault_s + 31);
  const std::vector<std::string> seen = sources(newest());
  EXPECT_EQ(std::ranges::count(seen, "stacks/"), 1);
  EXPECT_EQ(std::ranges::count(seen, "stacks/n3"), 1);
  EXPECT_LT(seen.size(), 10U);
}

TEST_F(IncidentTest, OnlyWhatEndedBadlyIsAnIncident) {
  struct Row {
    const char* cause;
    double ended_s;
    std::size_t incidents;
  };
  for (const Row& row : {Row{"done", kFault_s, 0}, Row{"stopped", kFault_s, 0}, Row{"", 0, 0},
                         Row{"rank_died", kFault_s, 1}, Row{"some_new_cause", kFault_s, 1}}) {
    ledger_.attempts.resize(1);
    ledger_.attempts[0].cause = row.cause;
    ledger_.attempts[0].ended_s = row.ended_s;
    EXPECT_THAT(read_incidents(ledger_, files(), 9), SizeIs(row.incidents)) << row.cause;
    EXPECT_THAT(page(), HasSubstr("</html>"));
  }
  // All nodes are suspects where nothing tells them apart: none is named.
  ledger_.attempts[0].suspects = ledger_.attempts[0].nodes;
  EXPECT_THAT(nodes_of(newest()), IsEmpty());
  ledger_.attempts.clear();
  EXPECT_THAT(page(), HasSubstr("</html>"));
}

}  // namespace
}  // namespace ms::driver
