#include "health/commands/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "check_texts.h"
#include "health/checks/registry.h"
#include "health/commands/manual.h"
#include "health/commands/remote.h"

namespace ms::health {
namespace {

using testing::HasSubstr;
using testing::Not;

Finding ecc() {
  return {.code = "gpu.ecc",
          .severity = Severity::critical,
          .blame = Blame::gpu,
          .entity = "gpu 3",
          .message = "4 uncorrectable errors",
          .measured = 4,
          .limit = 0,
          .unit = "errors",
          .remedy = "reset the GPU"};
}

Result with(std::string code, Outcome outcome, std::vector<Finding> findings = {}) {
  return {.code = std::move(code), .outcome = outcome, .note = "why", .findings = std::move(findings)};
}

Finding warning() {
  return {
      .code = "host.clock", .severity = Severity::warning, .blame = Blame::node, .entity = "clock", .message = "off"};
}

TEST(Report, TheWorstOutcomeDecides) {
  const struct {
    std::vector<Result> results;
    const char* outcome;
    int status;
  } rows[] = {{{with("a", Outcome::pass)}, "ok", 0},
              {{with("a", Outcome::pass), with("b", Outcome::skip)}, "ok", 0},
              {{with("a", Outcome::skip)}, "unknown", 3},
              {{}, "unknown", 3},
              {{with("a", Outcome::pass), with("b", Outcome::broken)}, "unknown", 3},
              {{with("a", Outcome::broken), with("b", Outcome::warn, {warning()})}, "warn", 1},
              {{with("a", Outcome::warn, {warning()}), with("b", Outcome::critical, {ecc()})}, "critical", 2}};
  for (const auto& row : rows) {
    const Report report{.node = "n1", .results = row.results};
    EXPECT_EQ(report.outcome(), row.outcome);
    EXPECT_EQ(report.nagios_status(), row.status) << row.outcome;
  }
}

const Report kReport{.node = "n1",
                     .results = {with("host.clock", Outcome::warn, {warning()}), with("disk.errors", Outcome::pass),
                                 with("gpu.ecc", Outcome::critical, {ecc()}), with("gpu.xid", Outcome::skip)},
                     .wall_s = 0.5};

TEST(Report, TextPutsTheWorstFirst) {
  EXPECT_EQ(
      as_text(kReport, false),
      "n1: critical gpu.ecc gpu 3: 4 uncorrectable errors\n"
      "n1:          reset the GPU\n"
      "n1: warning  host.clock clock: off\n"
      "n1: critical: 1 check passed, 1 warned, 1 critical, 1 skipped in 500ms\n"
      "n1: 2 faults, not known to be connected: fix each\n"
      "n1: unfit for jobs, drain it: scontrol update NodeName=n1 State=DRAIN Reason='ms-diag:gpu.ecc gpu 3: 4 "
      "uncorrectable errors'\n"
      "n1: when it is fixed, log in to n1 and run \"ms-diag undrain\": it looks again, without kernel messages from "
      "before the drain, and brings the node back if nothing is critical\n"
      "n1: if that does not help, call the GPU team (gpu.ecc); the node team (host.clock)\n");
  EXPECT_THAT(as_text(kReport, true), HasSubstr("n1: skip     gpu.xid: why"));
}

// What follows from something else stands below it, and calls nobody of its own.
TEST(Report, TextPutsTheCauseBeforeWhatFollows) {
  const auto made = [](const char* code, Severity severity, Blame blame, const char* entity, const char* message) {
    return Finding{.code = code,
                   .severity = severity,
                   .blame = blame,
                   .entity = entity,
                   .message = message,
                   .remedy = fmt::format("Reset {}.", entity)};
  };
  const Report report{
      .node = "n1",
      .results = {
          with("gpu.nvlink", Outcome::critical,
               {made("gpu.nvlink", Severity::critical, Blame::gpu, "gpu 0", "16 of 18 NVLinks are active")}),
          with("net.mtu", Outcome::warn, {made("net.mtu", Severity::warning, Blame::node, "eth1", "has 1500")}),
          with("gpu.sxid", Outcome::warn,
               {made("gpu.sxid", Severity::warning, Blame::gpu, "switch 0", "fatal SXid 20034 at 0000:c1:00.0")}),
          with("gpu.fabric", Outcome::warn,
               {made("gpu.fabric", Severity::warning, Blame::node, "gpu 1", "it has not joined")})}};
  EXPECT_THAT(
      as_text(report, false),
      testing::StartsWith("n1: warning  gpu.sxid switch 0: fatal SXid 20034 at 0000:c1:00.0\n"
                          "n1:          The cause of what is critical below. Reset switch 0.\n"
                          "n1:   critical gpu.nvlink gpu 0: 16 of 18 NVLinks are active\n"
                          "n1:            Follows from gpu.sxid switch 0: fix that first.\n"
                          "n1:   warning  gpu.fabric gpu 1: it has not joined\n"
                          "n1:            May follow from gpu.sxid switch 0, or be a fault of its own. Reset gpu "
                          "1.\n"
                          "n1: warning  net.mtu eth1: has 1500\n"));
  EXPECT_THAT(as_text(report, false), HasSubstr("call the GPU team (gpu.sxid); the node team (net.mtu)\n"));
  EXPECT_THAT(as_text(report, false), HasSubstr("Reason='ms-diag:gpu.sxid switch 0: fatal SXid 20034 at 0000:c1:00.0; "
                                                "also gpu.nvlink gpu 0'\n"));
  const auto json = nlohmann::json::parse(as_json(report)).at("findings");
  EXPECT_TRUE(json.at(0).at("follows_from").is_null());
  EXPECT_EQ(json.at(1).at("follows_from"),
            nlohmann::json({{"code", "gpu.sxid"}, {"entity", "switch 0"}, {"sure", true}}));
  EXPECT_EQ(json.at(2).at("follows_from").at("sure"), false);
  EXPECT_EQ(as_json(from_json(as_json(report))), as_json(report));
}

TEST(Report, TextOfWarningsSaysThatNoDrainIsNeeded) {
  const Report report{.node = "n1", .results = {with("host.clock", Outcome::warn, {warning()})}};
  EXPECT_THAT(as_text(report, false),
              HasSubstr("n1: need not be drained for warnings; where a fix needs a reboot, drain it "
                        "first, so that its jobs end\n"
                        "n1: when it is fixed, log in to n1 and look again: \"ms-diag run\"\n"
                        "n1: if that does not help, call the node team (host.clock)\n"));
}

TEST(Report, TextOfNoHostNameHasNoCommand) {
  Report report = kReport;
  report.node = "n1;reboot";
  EXPECT_THAT(as_text(report, false), Not(HasSubstr("scontrol")));
}

TEST(Report, TextSaysWhyNothingWasSeen) {
  const Report report{.node = "n1", .results = {with("gpu.ecc", Outcome::skip)}};
  EXPECT_THAT(as_text(report, false), HasSubstr("n1: skip     gpu.ecc: why\n"));
  EXPECT_THAT(as_text(kReport, false), Not(HasSubstr("skip     gpu.xid")));
  Report user = kReport;
  user.results[3].note = "/dev/kmsg: Permission denied";
  EXPECT_THAT(as_text(user, false), HasSubstr("1 skipped (1 for want of root)"));
  Report forged = kReport;
  forged.results[0].outcome = Outcome::broken;
  forged.results[0].note = "x\nn2: critical gpu.ecc gpu 0: broken\x1b[2J";
  EXPECT_THAT(as_text(forged, false), HasSubstr("x\\nn2: critical gpu.ecc gpu 0: broken\\x1b[2J\n"));
}

TEST(Report, JsonIsTheContract) {
  const auto json = nlohmann::json::parse(as_json(kReport));
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("node"), "n1");
  EXPECT_EQ(json.at("outcome"), "critical");
  const auto& finding = json.at("findings").at(0);
  for (const char* key : {"code", "severity", "blame", "entity", "measured", "limit", "unit", "remedy"}) {
    EXPECT_TRUE(finding.contains(key)) << key;
  }
  EXPECT_EQ(finding.at("measured"), 4);
  EXPECT_EQ(finding.at("blame"), "gpu");
  EXPECT_TRUE(json.at("findings").at(1).at("measured").is_null());
  EXPECT_EQ(as_json(from_json(as_json(kReport))), as_json(kReport));
}

TEST(Report, JsonOfOthersIsReadWithCare) {
  for (const char* text : {"", "{}", "[]", "null", "{\"node\":1}", "hello\n{}"}) {
    EXPECT_THROW(from_json(text), Error) << text;
  }
  std::string odd = as_json(kReport);
  odd.replace(odd.find("\"skip\""), 6, "\"evil\"");
  EXPECT_THROW(from_json(odd), Error);
}

TEST(Report, JsonSurvivesOddBytes) {
  Report report = kReport;
  report.results[2].findings[0].message = "bytes \xff\x01";
  EXPECT_NO_THROW(nlohmann::json::parse(as_json(report)));
}

TEST(Report, NagiosIsOneLine) {
  Report report = kReport;
  report.results[2].findings[0].message = "4|errors\n'now'";
  const std::string line = as_nagios({report});
  EXPECT_EQ(
      line,
      "CRITICAL - gpu.ecc gpu 3: 4 errors  now ; host.clock clock: off | 'seconds'=0.500s 'gpu.ecc gpu 3'=4;;0\n");
  const Report well{.node = "n2", .results = {with("a", Outcome::pass)}};
  EXPECT_EQ(as_nagios({well}), "OK - 1 check passed | 'seconds'=0.000s\n");
  const Report gone{.node = "n3", .results = {with("ssh", Outcome::broken)}};
  EXPECT_EQ(as_nagios({well, gone}), "UNKNOWN - n3 ssh is broken: why | 'seconds'=0.000s\n");
  EXPECT_THAT(as_nagios({well, report, gone}), testing::StartsWith("CRITICAL - n1 gpu.ecc gpu 3: "));
  EXPECT_THAT(as_nagios({well, report, gone}), HasSubstr("'n1 gpu.ecc gpu 3'=4;;0"));
}

TEST(Report, PrometheusHasEverySeriesOnce) {
  Report report = kReport;
  report.results[2].findings.push_back(ecc());
  report.results[2].findings[1].measured = 9;
  report.results[0].findings[0].entity = "a\"b\\c\n";
  Report other = kReport;
  other.node = "n2";
  const std::string text = as_prometheus({report, other});
  std::size_t types = 0;
  for (std::size_t at = text.find("# TYPE"); at != std::string::npos; at = text.find("# TYPE", at + 1)) ++types;
  EXPECT_EQ(types, 5U) << "a family is declared once, however many nodes there are, and not without a sample";
  EXPECT_THAT(text, HasSubstr("ms_diag_status{node=\"n2\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("ms_diag_check_status{node=\"n1\",check=\"gpu.ecc\"} 2\n"));
  EXPECT_THAT(text,
              HasSubstr("ms_diag_finding{node=\"n1\",check=\"gpu.ecc\",device=\"gpu 3\",severity=\"critical\"} 9\n"));
  EXPECT_THAT(text, Not(HasSubstr("node=\"n1\",check=\"gpu.ecc\",device=\"gpu 3\",severity=\"critical\"} 4")));
  EXPECT_THAT(text, HasSubstr("device=\"a\\\"b\\\\c?\""));
  EXPECT_THAT(text, Not(HasSubstr("gpu.xid"))) << "skipped";
  EXPECT_THAT(text, HasSubstr("ms_diag_status{node=\"n1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("ms_diag_policy_usable 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("ms_diag_last_run_timestamp_seconds{"))) << "not known";
  const Report active{.node = "n1",
                      .results = {{.code = "perf.gemm", .level = 2, .measured = {{"fp32", 12.5, "GFLOP/s"}}}},
                      .at_wall_s = 1e9};
  EXPECT_THAT(as_prometheus({active}), HasSubstr("device=\"fp32\",unit=\"GFLOP/s\"} 12.5\n"));
  EXPECT_THAT(as_prometheus({active}), HasSubstr("ms_diag_last_run_timestamp_seconds{node=\"n1\"} 1000000000\n"));
}

TEST(Registry, ChecksAreComplete) {
  std::set<std::string_view> codes;
  for (const Check& check : passive_checks()) {
    expect_complete(check);
    EXPECT_EQ(check.level, 1) << check.code;
    EXPECT_TRUE(codes.insert(check.code).second) << check.code << " is there twice";
    const bool of_users = matches(
        "gpu.busy,host.hung,host.space,host.swap,host.free,host.frag,host.tables,host.load,host.strays,host.kmsg,"
        "disk.nfs",
        check.code);
    EXPECT_EQ(check.user_can_cause, of_users) << check.code;
    EXPECT_NE(proof(check), "") << check.code;
  }
  EXPECT_GE(codes.size(), 20u);
  const std::string list = list_json(passive_checks());
  const auto first = nlohmann::json::parse(list.substr(0, list.find('\n')));
  EXPECT_EQ(first.at("code"), passive_checks().front().code);
}

TEST(Registry, PatternsChoose) {
  const struct {
    const char* globs;
    const char* code;
    bool yes;
  } rows[] = {{"*", "gpu.ecc", true},         {"gpu.*", "gpu.ecc", true}, {"gpu.*", "host.mce", false},
              {"a,gpu.ecc", "gpu.ecc", true}, {"", "gpu.ecc", false},     {"gpu", "gpu.ecc", false}};
  for (const auto& row : rows) EXPECT_EQ(matches(row.globs, row.code), row.yes) << row.globs;
}

TEST(Manual, ExplainsEveryCheckAndRefusesOthers) {
  const std::vector<Check>& checks = passive_checks();
  for (const Check& check : checks) EXPECT_THAT(explain(checks, check.code), HasSubstr("Remedy: "));
  EXPECT_THROW(explain(checks, "gpu.exx"), Error);
}

TEST(Remote, RefusesWhatAShellThereCouldMisread) {
  RemoteOptions options{.program = "/usr/bin/ms-diag"};
  EXPECT_THROW(run_remote({"-oProxyCommand=x"}, options), Error);
  EXPECT_THROW(run_remote({"a;b"}, options), Error);
  options.only = "'; reboot #";
  EXPECT_THROW(run_remote({"n1"}, options), Error);
  options.only = "*";
  options.config = "/etc/$(x)";
  EXPECT_THROW(run_remote({"n1"}, options), Error);
}

}  // namespace
}  // namespace ms::health
