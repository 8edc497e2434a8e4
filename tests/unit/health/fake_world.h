// A Slurm, checks and a log that tests of the flow around a job make up: what every call does can be broken, before it
// is obeyed or after.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "health/act/world.h"
#include "test_files.h"

namespace ms::health {

inline Finding critical(std::string code, std::string entity, std::string message = "is bad") {
  return {.code = std::move(code),
          .severity = Severity::critical,
          .blame = Blame::gpu,
          .entity = std::move(entity),
          .message = std::move(message)};
}

inline slurm::Node make_node(std::string name, std::string reason = {}) {
  slurm::Node node;
  node.host = name;
  node.name = std::move(name);
  node.states = {"IDLE"};
  node.reason = std::move(reason);
  return node;
}

inline slurm::Job make_job() {
  slurm::Job job;
  job.id = 7;
  job.state = "RUNNING";
  job.batch = true;
  job.requeue = true;
  return job;
}

struct FakeSlurm {
  // Called around every call with its words, "drain node02 ms-diag:..."; what it throws is what the caller gets.
  std::function<void(const std::string&)> before = [](const std::string&) {};
  std::function<void(const std::string&)> after = [](const std::string&) {};
  std::map<std::string, slurm::Node> nodes;
  slurm::Job job = make_job();
  slurm::SiteFacts site;
  std::vector<std::string> calls;
  double left_s = 1000;

  explicit FakeSlurm(int num_nodes) {
    for (int i = 1; i <= num_nodes; ++i) {
      const std::string name = fmt::format("node{:02}", i);
      nodes[name] = make_node(name);
    }
    site.config = {{"SLURM_VERSION", "22.05.8"},
                   {"PrologFlags", "Alloc,DeferBatch"},
                   {"SchedulerParameters", "nohold_on_prolog_fail"},
                   {"JobRequeue", "1"},
                   {"MessageTimeout", "60 sec"},
                   {"BatchStartTimeout", "60 sec"},
                   {"MaxBatchRequeue", "5"},
                   {"Prolog", "/usr/libexec/ms/ms-prolog"}};
    site.ms_version = "1.0.0";
  }

  void set_drained(const std::string& node, std::string reason, std::string user = "root") {
    nodes.at(node).states = {"IDLE", "DRAIN"};
    nodes.at(node).reason = std::move(reason);
    nodes.at(node).reason_user = std::move(user);
  }
  bool is_drained(const std::string& node) const { return nodes.at(node).is_drained_or_draining(); }
  int num_drained() const {
    int count = 0;
    for (const auto& [name, node] : nodes) count += node.is_drained_or_draining() ? 1 : 0;
    return count;
  }
  int num_calls(const std::string& word) const {
    int count = 0;
    for (const std::string& call : calls) count += call.starts_with(word) ? 1 : 0;
    return count;
  }

  template <class F>
  auto called(const std::string& words, F&& action) {
    calls.push_back(words);
    before(words);
    auto result = action();
    after(words);
    return result;
  }

  SlurmCalls functions() {
    return {.site_facts = [this] { return called("config", [&] { return site; }); },
            .node = [this](const std::string& name) { return called("node " + name, [&] { return nodes.at(name); }); },
            .nodes =
                [this] {
                  return called("nodes", [&] {
                    std::vector<slurm::Node> all;
                    for (const auto& [name, node] : nodes) all.push_back(node);
                    return all;
                  });
                },
            .job = [this](std::uint32_t id) { return called(fmt::format("job {}", id), [&] { return job; }); },
            .drain =
                [this](const std::string& node, const std::string& reason) {
                  called(fmt::format("drain {} {}", node, reason), [&] { return set_drained(node, reason), true; });
                },
            .resume =
                [this](const std::string& name) {
                  called("resume " + name, [&] { return nodes.at(name) = make_node(name), true; });
                },
            .set_admin_comment =
                [this](std::uint32_t id, const std::string& text) {
                  called(fmt::format("comment {} {}", id, text), [&] { return job.admin_comment = text, true; });
                },
            .notify =
                [this](std::uint32_t id, const std::string& text) {
                  called(fmt::format("notify {} {}", id, text), [&] { return true; });
                },
            .requeue = [this](std::uint32_t id) { called(fmt::format("requeue {}", id), [&] { return true; }); },
            .left_s = [this] { return left_s; }};
  }
};

inline Error no_answer() { return Error("slurm.command", Blame::slurm, "no answer in time"); }

}  // namespace ms::health
