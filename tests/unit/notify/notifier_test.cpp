// What is sent to whom, when, and again: the network is a function here, the time a fake.
#include "notify/notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "notify/relay.h"
#include "support/files.h"

namespace ms::notify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kAlerts = "http://alerts:9093/api/v2/alerts";
constexpr const char* kHook = "https://hooks.example/T1";

class NotifierTest : public ::testing::Test {
 protected:
  NotifierTest() {
    config_.alertmanager = "http://alerts:9093/";
    config_.slack = kHook;
  }
  health::Event event(const std::string& kind, const std::string& node, double age_s = 0) const {
    return {.wall_s = clock_.wall_s() - age_s,
            .kind = kind,
            .node = node,
            .code = "gpu.ecc",
            .message = "gpu 3: 4 uncorrectable errors",
            .job_id = 123};
  }
  // Answers by URL, in order; then 200.
  HttpReply answer(const HttpRequest& request) {
    requests_.push_back(request);
    std::deque<HttpReply>& planned = plan_[request.url];
    if (planned.empty()) return {.status = 200};
    HttpReply reply = planned.front();
    planned.pop_front();
    return reply;
  }
  Look look(const SpooledEvents& events) {
    requests_.clear();
    Notifier notifier(
        config_, outbox_, clock_, [this](const HttpRequest& request) { return answer(request); },
        [this](const Outbox& outbox) { outbox_ = parse_outbox(outbox_json(outbox)); },
        [this](const health::Event& event) {
          if (relay_problem_.empty()) left_.push_back(event.node);
          return relay_problem_;
        });
    return notifier.look(events);
  }
  std::vector<std::string> urls() const {
    std::vector<std::string> result;
    for (const HttpRequest& request : requests_) result.push_back(request.url);
    return result;
  }
  Json body(std::size_t index) const { return Json::parse(requests_.at(index).body); }

  NotifyConfig config_;
  FakeClock clock_;
  Outbox outbox_;
  std::map<std::string, std::deque<HttpReply>> plan_;
  std::vector<HttpRequest> requests_;
  std::vector<std::string> left_;  // in the relay
  std::string relay_problem_;
};

TEST_F(NotifierTest, ADrainIsTold) {
  const Look result = look({{"1", event("drain", "node02")}});
  EXPECT_EQ(result.num_sent, 2U);
  EXPECT_EQ(result.num_waiting, 0U);
  EXPECT_THAT(urls(), ElementsAre(kAlerts, kHook));
  const Json alert = body(0).at(0);
  EXPECT_EQ(alert["labels"], Json::parse(R"({"alertname":"MsDiagDrained","severity":"critical","code":"gpu.ecc",
                                            "node":"node02","job":"123"})"));
  EXPECT_EQ(alert["annotations"]["description"], "gpu 3: 4 uncorrectable errors");
  EXPECT_EQ(alert["startsAt"], rfc3339(clock_.wall_s()));
  EXPECT_EQ(alert["endsAt"], rfc3339(clock_.wall_s() + config_.drain_stays_s));
  EXPECT_EQ(body(1)["text"], "*critical* node02 was drained: gpu.ecc (job 123) - gpu 3: 4 uncorrectable errors [" +
                                 rfc3339(clock_.wall_s()) + "]");
}

TEST_F(NotifierTest, AMailSaysWhatHappenedAndWhatToDo) {
  config_.alertmanager.clear(), config_.slack.clear();
  config_.mail_server = "smtp://mail:25";
  config_.mail_to = {"ops@site.example", "night@site.example"};
  health::Event failed = event("run-failed", "");
  failed.code = "code 93";
  failed.message = "rank 1: ValueError\r\nBcc: everybody@site.example\r\n\r\n.\r\n";
  const Look result = look({{"1", event("drain", "node02")}, {"2", failed}});
  EXPECT_EQ(result.num_sent, 2U);
  ASSERT_EQ(requests_.size(), 1U) << "one mail for both";
  EXPECT_EQ(requests_[0].url, "smtp://mail:25");
  EXPECT_EQ(requests_[0].mail_to, config_.mail_to);
  const std::string& text = requests_[0].body;
  const std::size_t head = text.find("\r\n\r\n");
  ASSERT_NE(head, std::string::npos);
  const std::string headers = text.substr(0, head);
  EXPECT_THAT(headers, HasSubstr("To: ops@site.example, night@site.example\r\n"));
  EXPECT_THAT(headers, HasSubstr("Subject: [ms] critical: node02 was drained: gpu.ecc (job 123) (and 1 more)\r\n"));
  EXPECT_THAT(text, HasSubstr("gpu 3: 4 uncorrectable errors"));
  EXPECT_THAT(text, HasSubstr("What to do: "));
  EXPECT_THAT(text, Not(HasSubstr("\r\nBcc:"))) << "what a rank said makes no header";
  EXPECT_THAT(text, Not(HasSubstr("\r\n.\r\n")));
  EXPECT_EQ(look({{"1", event("drain", "node02")}, {"2", failed}}).num_sent, 0U);
}

TEST_F(NotifierTest, NobodyIsToldTwice) {
  const SpooledEvents events{{"1", event("drain", "node02")}};
  look(events);
  EXPECT_EQ(look(events).num_sent, 0U);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(NotifierTest, ANodeThatNeedsAPersonDoesSoUntilItIsReturned) {
  config_.slack.clear();
  look({{"1", event("drain", "node02")}, {"2", event("bundled", "node02")}});
  ASSERT_EQ(requests_.size(), 2U);
  EXPECT_EQ(body(1)[0]["labels"]["alertname"], "MsDiagNeedsPerson");
  EXPECT_EQ(body(1)[0]["endsAt"], rfc3339(clock_.wall_s() + config_.drain_stays_s));
  EXPECT_EQ(outbox_.standing.size(), 2U) << "it replaces no drain";
  requests_.clear();
  look({{"3", event("bundled", "node02")}});
  EXPECT_EQ(outbox_.standing.size(), 2U);
  requests_.clear();
  look({{"4", event("undrain", "node02")}});
  ASSERT_EQ(requests_.size(), 1U);
  EXPECT_EQ(body(0).size(), 2U);
  EXPECT_TRUE(outbox_.standing.empty());
}

TEST_F(NotifierTest, AnUndrainResolves) {
  look({{"1", event("drain", "node02")}});
  clock_.advance_s(100);
  look({{"1", event("drain", "node02", 100)}, {"2", event("undrain", "node02")}, {"3", event("undrain", "node07")}});
  EXPECT_THAT(urls(), ElementsAre(kAlerts, kHook));  // Alertmanager knows nothing of node07
  ASSERT_EQ(body(0).size(), 1U);
  EXPECT_EQ(body(0)[0]["labels"]["alertname"], "MsDiagDrained");
  EXPECT_EQ(body(0)[0]["endsAt"], rfc3339(clock_.wall_s()));
  EXPECT_TRUE(outbox_.standing.empty());
}

TEST_F(NotifierTest, WhatHasNoEndOfItsOwnIsGivenOne) {
  for (const char* kind : {"would-drain", "withdrawn", "strike", "something-new"}) {
    look({{kind, event(kind, "node02", 50)}});
    ASSERT_EQ(body(0).size(), 1U) << kind;
    EXPECT_EQ(body(0)[0]["endsAt"], rfc3339(clock_.wall_s() + config_.event_stays_s)) << kind;
  }
}

TEST_F(NotifierTest, AWithdrawalEndsTheDrain) {
  look({{"1", event("drain", "node02")}, {"2", event("drain", "node03")}});
  look({{"3", event("withdrawn", "node02")}});
  ASSERT_EQ(body(0).size(), 2U);
  EXPECT_EQ(body(0)[0]["labels"]["alertname"], "MsDiagDrained");
  EXPECT_EQ(body(0)[1]["labels"]["alertname"], "MsDiagWithdrawn");
  ASSERT_EQ(outbox_.standing.size(), 1U);
  EXPECT_EQ(outbox_.standing[0].event.node, "node03");
}

TEST_F(NotifierTest, ADrainAnewEndsTheOlderOne) {
  look({{"1", event("drain", "node02")}});
  health::Event anew = event("drain", "node02");
  anew.job_id = 124;
  look({{"2", anew}});
  ASSERT_EQ(body(0).size(), 2U);
  EXPECT_EQ(body(0)[0]["labels"]["job"], "123");
  EXPECT_EQ(body(0)[1]["labels"]["job"], "124");
  EXPECT_EQ(outbox_.standing.size(), 1U);
}

TEST_F(NotifierTest, OneThatIsDownHoldsUpNoOther) {
  config_.retries = 2;
  for (int i = 0; i < 3; ++i) plan_[kAlerts].push_back({.problem = "Connection refused"});
  const SpooledEvents events{{"1", event("drain", "node02")}, {"2", event("strike", "node02")}};
  const double before_s = clock_.now_s();
  Look result = look(events);
  EXPECT_THAT(urls(), ElementsAre(kAlerts, kAlerts, kAlerts, kHook));
  EXPECT_DOUBLE_EQ(clock_.now_s() - before_s, config_.backoff_s * (1 + 2));
  EXPECT_EQ(result.num_sent, 2U);
  EXPECT_EQ(result.num_waiting, 2U);

  result = look(events);  // it is up again, and Slack is not told again
  EXPECT_THAT(urls(), ElementsAre(kAlerts, kAlerts));
  EXPECT_EQ(result.num_sent, 2U);
  EXPECT_EQ(body(0)[0]["labels"]["alertname"], "MsDiagDrained");
  EXPECT_EQ(body(1)[0]["labels"]["alertname"], "MsDiagStrike");
}

TEST_F(NotifierTest, PausesAreBounded) {
  config_.slack.clear();
  config_.retries = 10;
  config_.backoff_s = 30;
  for (int i = 0; i < 11; ++i) plan_[kAlerts].push_back({.status = 503});
  look({{"1", event("drain", "node02")}});
  EXPECT_DOUBLE_EQ(clock_.now_s(), 300);
}

TEST_F(NotifierTest, WhatMayPassIsRepeated) {
  config_.slack.clear();
  for (const int status : {0, 408, 429, 500, 503}) {
    plan_[kAlerts] = {{.status = status}};
    look({{std::to_string(status), event("strike", "node02")}});
    EXPECT_EQ(requests_.size(), 2U) << status;
  }
}

TEST_F(NotifierTest, WhatIsRefusedHoldsUpNothingAndIsKept) {
  config_.slack.clear();
  plan_[kAlerts] = {{.status = 400, .body = "bad"}};
  const SpooledEvents events{{"1", event("strike", "node02")}, {"2", event("strike", "node03")}};
  Look result = look(events);
  EXPECT_EQ(requests_.size(), 2U);
  EXPECT_EQ(result.num_sent, 1U);
  EXPECT_EQ(result.num_waiting, 1U);
  result = look(events);
  EXPECT_EQ(requests_.size(), 1U);
  EXPECT_EQ(result.num_sent, 1U);
  EXPECT_EQ(result.num_waiting, 0U);
}

TEST_F(NotifierTest, ARedirectIsARefusal) {
  config_.slack.clear();
  plan_[kAlerts] = {{.status = 302}};
  EXPECT_EQ(look({{"1", event("drain", "node02")}}).num_waiting, 1U);
  EXPECT_EQ(requests_.size(), 1U);
}

TEST_F(NotifierTest, OldNewsIsNone) {
  const Look result = look({{"1", event("drain", "node02", config_.max_age_s + 1)}, {"2", event("drain", "node03")}});
  EXPECT_EQ(result.num_too_old, 2U);  // for each of the two
  EXPECT_EQ(result.num_sent, 2U);
  EXPECT_EQ(look({{"1", event("drain", "node02", config_.max_age_s + 1)}}).num_too_old, 0U);
}

TEST_F(NotifierTest, AlertsAreSentAgainUntilTheyEnd) {
  config_.slack.clear();
  const SpooledEvents events{{"1", event("drain", "node02")}};
  look(events);
  const std::string first = requests_[0].body;
  clock_.advance_s(config_.resend_s - 1);
  look(events);
  EXPECT_TRUE(requests_.empty());
  clock_.advance_s(2);
  look({});  // also when the spool has forgotten it
  ASSERT_EQ(requests_.size(), 1U);
  EXPECT_EQ(requests_[0].body, first);
  look({});
  EXPECT_TRUE(requests_.empty());
  clock_.advance_s(config_.drain_stays_s);
  look({});
  EXPECT_TRUE(requests_.empty());
  EXPECT_TRUE(outbox_.standing.empty());
}

TEST_F(NotifierTest, ManyEventsAreFewMessages) {
  config_.alertmanager.clear();
  SpooledEvents events;
  for (int i = 10; i < 55; ++i) events.emplace_back(std::to_string(i), event("strike", "node" + std::to_string(i)));
  EXPECT_EQ(look(events).num_sent, 45U);
  ASSERT_EQ(requests_.size(), 3U);
  EXPECT_THAT(body(0)["text"].get<std::string>(), HasSubstr("node29"));
  EXPECT_THAT(body(0)["text"].get<std::string>(), Not(HasSubstr("node30")));
}

TEST_F(NotifierTest, NothingIsSentThatCannotBeRemembered) {
  Notifier notifier(
      config_, {}, clock_, [this](const HttpRequest& request) { return answer(request); },
      [](const Outbox&) { throw Error("file.write", Blame::storage, "no space left on device"); },
      [](const health::Event&) { return std::string(); });
  EXPECT_THROW(notifier.look({{"1", event("drain", "node02")}}), Error);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(NotifierTest, WhatTheRelayDoesNotTakeWaitsInOrder) {
  config_.alertmanager = config_.slack = "";
  config_.relay_to = "/shared";
  const SpooledEvents events{{"1", event("drain", "node02")}, {"2", event("undrain", "node03")}};
  relay_problem_ = "no space left on device";
  EXPECT_EQ(look(events).num_waiting, 2U);
  relay_problem_ = "";
  EXPECT_EQ(look(events).num_sent, 2U);
  EXPECT_THAT(left_, ElementsAre("node02", "node03"));
  EXPECT_EQ(look(events).num_sent, 0U);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(NotifierTest, HostileTextStaysText) {
  health::Event hostile = event("drain", "node02\"}],\n");
  hostile.message = std::string("<!channel> <http://evil|x> & \"}]\x01\xff\xc0 ") + std::string(5000, 'x');
  look({{"1", hostile}});
  ASSERT_EQ(requests_.size(), 2U);
  EXPECT_EQ(body(0).size(), 1U);
  EXPECT_EQ(body(0)[0]["labels"]["node"], "node02\"}],\n");
  EXPECT_LT(requests_[0].body.size(), 4000U);
  const std::string text = body(1)["text"];
  EXPECT_THAT(text, HasSubstr("&lt;!channel&gt; &lt;http://evil|x&gt; &amp; "));
  EXPECT_THAT(text, Not(HasSubstr("<")));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
}

TEST(Rfc3339, OfAnyNumber) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(rfc3339(1795228811.1234), "2026-11-21T02:40:11.123Z");
  EXPECT_EQ(rfc3339(-5), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(rfc3339(1e300), "9999-12-31T23:59:59.000Z");
}

TEST(OutboxTest, ComesBackAsItWas) {
  Outbox outbox;
  outbox.sent["slack"] = {"a", "b"};
  outbox.standing = {
      {{.wall_s = 5, .kind = "drain", .node = "n", .code = "c", .message = "m\xff", .job_id = 7, .strikes = 2},
       100.5,
       50}};
  const Outbox back = parse_outbox(outbox_json(outbox));
  EXPECT_EQ(back.sent, outbox.sent);
  ASSERT_EQ(back.standing.size(), 1U);
  EXPECT_EQ(back.standing[0].event.job_id, 7U);
  EXPECT_DOUBLE_EQ(back.standing[0].ends_wall_s, 100.5);
}

TEST(OutboxTest, RubbishIsEmpty) {
  for (const char* text :
       {"", "{", "[]", "7", R"({"sent":5,"standing":{}})", R"({"sent":{"slack":[1,{}]},"standing":[3]})"}) {
    const Outbox outbox = parse_outbox(text);
    EXPECT_FALSE(outbox.is_sent("slack", "a")) << text;
    EXPECT_TRUE(outbox.standing.empty()) << text;
  }
  const Outbox odd = parse_outbox(R"({"standing":[{"node":5,"ends":"x","job":"y"}]})");
  ASSERT_EQ(odd.standing.size(), 1U);
  EXPECT_EQ(odd.standing[0].event.node, "");
}

TEST(OutboxTest, OnlyWhatIsInTheSpoolIsKept) {
  Outbox outbox;
  outbox.sent["slack"] = {"a", "b"};
  outbox.forget_all_but({"b", "c"});
  EXPECT_FALSE(outbox.is_sent("slack", "a"));
  EXPECT_TRUE(outbox.is_sent("slack", "b"));
  EXPECT_FALSE(outbox.is_sent("other", "b"));
}

struct ConfigRowCase {
  const char* text;
  const char* problem;  // empty: none
};

TEST(NotifyConfigTest, IsChecked) {
  for (const ConfigRowCase& row : {
           ConfigRowCase{"[notify]\nalertmanager = 'http://a:9093'", ""},
           ConfigRowCase{"[notify]\nslack = 'https://hooks.example/x'\ntimeout = '5s'", ""},
           ConfigRowCase{"", "no destination"},
           ConfigRowCase{"[notify]\nalertmanager = 'file:///etc/passwd'", "http://"},
           ConfigRowCase{"[notify]\nalertmanager = 'http://'", "http://"},
           ConfigRowCase{"[notify]\nslack = 'http://a b'", "http://"},
           ConfigRowCase{"[notify]\nslack = 'http://a'\nproxy = 'socks5://x'", "http://"},
           ConfigRowCase{"[notify]\nslack = 'http://a'\nstate = 'here'", "absolute"},
           ConfigRowCase{"[notify]\nslack = 'http://a'\nretries = 1000", "retries"},
           ConfigRowCase{"[notify]\nslak = 'http://a'", "slack"},
       }) {
    const std::string path = ::testing::TempDir() + "notify_config_test.toml";
    std::FILE* file = std::fopen(path.c_str(), "w");
    std::fputs(row.text, file);
    std::fclose(file);
    std::string problem;
    try {
      load_notify_config(path);
    } catch (const Error& error) { problem = error.message(); }
    std::remove(path.c_str());
    if (*row.problem == '\0') {
      EXPECT_EQ(problem, "") << row.text;
    } else {
      EXPECT_THAT(problem, HasSubstr(row.problem)) << row.text;
    }
  }
}

// Others may write in the relay: what was a node's folder when it was read may be a link by now.
TEST(Relay, RemovesEventsFromFoldersOnly) {
  const test::TempDir dir;
  for (const char* folder : {"relay", "relay/n1", "other"}) std::filesystem::create_directory(dir / folder);
  for (const char* file : {"relay/n1/1.json", "relay/n1/2.json", "other/1.json"}) test::spill(dir / file, "{}");
  std::filesystem::create_directory_symlink(dir / "other", dir / "relay/n2");
  remove_event(dir / "relay", "n1/1.json");
  remove_event(dir / "relay", "n1/none.json");
  remove_event(dir / "relay", "n2/1.json");
  EXPECT_THAT(test::names_in(dir / "relay/n1"), ElementsAre("2.json"));
  EXPECT_THAT(test::names_in(dir / "other"), ElementsAre("1.json"));
}

}  // namespace
}  // namespace ms::notify
