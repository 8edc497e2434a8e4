// What a run and its operators write, and others may have changed: lines of the driver's agents, ledgers, metrics, and
// the tables that simulators replay.
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "driver/ledger.h"
#include "driver/time_spent.h"
#include "driver/wire.h"
#include "loan/trace.h"
#include "target.h"
#include "tracepp/page/metrics.h"
#include "train/simulate/fault_files.h"

namespace ms::fuzz {
namespace {

// One line is read as each kind of message.
void driver_wire(std::string_view bytes) {
  const std::string line(bytes);
  const auto tried = [](auto read) {
    try {
      read();
    } catch (const Error&) {}  // a refusal
  };
  tried([&] { driver::read_greeting(driver::to_json(driver::read_greeting(line))); });
  tried([&] { driver::read_order(driver::to_json(driver::read_order(line))); });
  tried([&] {
    const driver::AgentSays says = driver::read_agent(line);
    expect(says.report.has_value() != says.answer.has_value(), "a line of an agent is one of the two");
    if (says.report) expect(says.report->losses.size() <= driver::kMostLosses, "a report is bounded");
    driver::read_agent(says.report ? driver::to_json(*says.report) : driver::to_json(*says.answer));
  });
}
std::vector<std::string> driver_seeds() {
  return {driver::to_json(
              driver::Greeting{.role = driver::agent_role(7), .node = "n1", .nonce = "0123", .credential = "MUNGE:"}),
          driver::to_json(driver::Report{
              .number = 3,
              .attempt = 1,
              .ranks = {{.rank = 0, .pid = 17, .state = 'S', .step = 5, .section = "step", .numbers = {{"loss", 2.5}}}},
              .took = {{"step", 0.25}},
              .segments = 100,
              .losses = {{}},
              .addresses = {"10.0.0.1"}}),
          driver::to_json(driver::Order{.what = "look", .attempt = 1}),
          driver::to_json(driver::Answer{.to = "look",
                                         .attempt = 1,
                                         .count = 1,
                                         .tasks = {{.rank = 0, .pid = 17, .waits_in = "futex", .stack = "x"}}})};
}

void ledger(std::string_view bytes) {
  const driver::Ledger read = driver::read_ledger(bytes, "ledger.json");
  const double effective = driver::time_spent(read, 2e9).effective();
  expect(effective >= 0 && effective <= 1, "the effective time is a share");
  const std::string text = driver::to_json(read, 2e9);
  expect(driver::to_json(driver::read_ledger(text, "ledger.json"), 2e9) == text, "what is written is read back");
}
std::vector<std::string> ledger_seeds() {
  return {driver::to_json({.command = {"ms-train", "run"},
                           .began_s = 1.9e9,
                           .attempts = {{.number = 1,
                                         .job = "12.0",
                                         .nodes = {"n1", "n2"},
                                         .began_s = 1.9e9,
                                         .first_step_s = 1.9e9 + 2,
                                         .ended_s = 1.9e9 + 90,
                                         .from_step = 0,
                                         .to_step = 40,
                                         .cause = "hang",
                                         .suspects = {"n2"}}},
                           .strikes = {{"n2", 1}},
                           .excluded = {{"n2", "two strikes"}}},
                          1.9e9 + 100)};
}

void metrics(std::string_view bytes) {
  const tracepp::MetricsTail tail = tracepp::parse_metrics(bytes, false);
  expect(tail.steps.size() + tail.not_understood <= bytes.size(), "a line gives at most one step");
}
std::vector<std::string> metrics_seeds() {
  return {R"({"step":1,"loss":5.5,"step_s":0.25,"tokens_per_s":1000,"data_wait_s":0.01})"
          "\n"
          R"({"step":2,"loss":"nan","skipped":true})"
          "\n"};
}

void fault_file(std::string_view bytes) {
  train::FaultSource source = train::read_fault_file(put("faults", bytes));
  source.watched = source.histories.size() + 1;
  expect(std::isfinite(source.per_node_day()) || source.span_s <= 0, "a rate of faults is finite");
}
std::vector<std::string> fault_seeds() {
  return {"node,begin,repair,kind\nn1,1.5,0.25,hang\nn2,3,1,lost\n",
          "kind,per_node_day,repair\ncrash,0.004,0.5\nslow,0.001,0\n",
          R"([{"node_id":"n1","event_time":1.5,"event_type":"fault_start","fault_type":{"Desc":"Link Down"}},)"
          R"({"node_id":"n1","event_time":2.5,"event_type":"fault_end"}])"};
}

void loan_jobs(std::string_view bytes) { loan::read_jobs(put("jobs.csv", bytes), loan::Policy()); }
std::vector<std::string> loan_seeds() {
  return {"submit,gpus,duration,max_gpus,time_limit\n0,8,3600,16,7200\n17,1,60,1,90\n",
          "timestamp,gpu_num,duration,state\n2017-10-09 07:01:55,4,120,Pass\n"};
}

const Target kTargets[] = {
    {"driver_wire", driver_wire, driver_seeds, {"1e400", "-1", "18446744073709551615", "\\u001b[2J", "[[[["}},
    {"ledger", ledger, ledger_seeds, {"1e308", "-1", "18446744073709551615", "\"attempts\":"}},
    {"metrics", metrics, metrics_seeds, {"1e400", "NaN", "\"step\":", "-9223372036854775808"}},
    {"fault_file", fault_file, fault_seeds, {"nan", "1e308", "-0", "crash", "slow", "per_node_day", "\"\"", ";"}},
    {"loan_jobs", loan_jobs, loan_seeds, {"1e308", "nan", "2017-10-09 07:01:55", "gpus", ",,", "\"", "\x1f\x8b"}},
};

}  // namespace

std::span<const Target> run_targets() { return kTargets; }

}  // namespace ms::fuzz
