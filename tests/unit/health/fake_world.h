// A Slurm, checks and a log that tests of the flow around a job make up: what every call does can be broken, before it
// is obeyed or after.
#pragma once

#include <functional>
#include <map>
#include <memory>
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
  std::vector<std::uint32_t> jobs;  // on any node
  slurm::SiteFacts site;
  std::vector<std::string> calls;
  double left_s = 1000;
  std::function<double()> left;  // if set, in place of left_s

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

  std::shared_ptr<const slurm::Commands> commands() { return std::make_shared<Commands>(*this); }
  slurm::SiteFacts site_facts() {
    return called("config", [&] { return site; });
  }

 private:
  class Commands : public slurm::Commands {
   public:
    explicit Commands(FakeSlurm& fake) : slurm::Commands({}), fake_(fake) {}
    double left_s() const override { return fake_.left ? fake_.left() : fake_.left_s; }
    slurm::Node node(const std::string& name) const override {
      return fake_.called("node " + name, [&] { return fake_.nodes.at(name); });
    }
    std::vector<slurm::Node> nodes() const override {
      return fake_.called("nodes", [&] {
        std::vector<slurm::Node> all;
        for (const auto& [name, node] : fake_.nodes) all.push_back(node);
        return all;
      });
    }
    std::vector<std::uint32_t> jobs_on(const std::string& node) const override {
      return fake_.called("jobs " + node, [&] { return fake_.jobs; });
    }
    slurm::Job job(std::uint32_t id) const override {
      return fake_.called(fmt::format("job {}", id), [&] { return fake_.job; });
    }
    void drain(const std::string& node, const std::string& reason) const override {
      fake_.called(fmt::format("drain {} {}", node, reason), [&] { return fake_.set_drained(node, reason), true; });
    }
    void resume(const std::string& name) const override {
      fake_.called("resume " + name, [&] { return fake_.nodes.at(name) = make_node(name), true; });
    }
    void set_admin_comment(std::uint32_t id, const std::string& text) const override {
      fake_.called(fmt::format("comment {} {}", id, text), [&] { return fake_.job.admin_comment = text, true; });
    }
    void notify(std::uint32_t id, const std::string& text) const override {
      fake_.called(fmt::format("notify {} {}", id, text), [] { return true; });
    }
    void requeue(std::uint32_t id) const override {
      fake_.called(fmt::format("requeue {}", id), [] { return true; });
    }

   private:
    FakeSlurm& fake_;
  };
};

inline Error no_answer() { return Error("slurm.command", Blame::slurm, "no answer in time"); }

}  // namespace ms::health
