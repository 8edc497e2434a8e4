#include "loan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace ms::loan {
namespace {

struct Times {
  Summary queue, completion;
};

Times times_of(const JobTrace& trace, const Outcome& outcome) {
  std::vector<double> queue, completion;
  for (std::size_t i = 0; i < outcome.jobs.size(); ++i) {
    queue.push_back(outcome.jobs[i].queue_s);
    completion.push_back(outcome.jobs[i].end_s - trace.jobs[i].submit_s);
  }
  return {.queue = summary_of(std::move(queue)), .completion = summary_of(std::move(completion))};
}

std::size_t elastic_jobs(const JobTrace& trace) {
  return static_cast<std::size_t>(
      std::count_if(trace.jobs.begin(), trace.jobs.end(), [](const TraceJob& job) { return job.elastic(); }));
}

// Shares of the time until the last submission, which jobs that come all at once leave none of.
bool has_shares(const JobTrace& trace) { return trace.span_s > 0; }
std::string share_text(const JobTrace& trace, double share, int digits) {
  return has_shares(trace) ? fmt::format("{:.{}f} %", 100 * share, digits) : "-";
}
Json share_json(const JobTrace& trace, double share) { return has_shares(trace) ? Json(share) : Json(nullptr); }

// GPU-seconds submitted, of those that training's own GPUs have until the last submission.
double load(const JobTrace& trace, const Policy& policy) {
  return trace.gpu_seconds() / (policy.train_gpus() * trace.span_s);
}

Json decisions_json(const Decisions& decisions) {
  return {{"count", decisions.count}, {"mean_s", decisions.mean_s()}, {"max_s", decisions.max_s}};
}

}  // namespace

Summary summary_of(std::vector<double> values) {
  if (values.empty()) return {};
  const std::size_t rank = (values.size() * 95 + 99) / 100 - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank), values.end());
  const double p95_s = values[rank];
  return {.mean_s = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          .p95_s = p95_s};
}

std::string replay_table(const JobTrace& trace, const Policy& policy, std::span<const Outcome> outcomes) {
  std::string text =
      fmt::format("{} over {}, {} elastic; training has {:.0f} GPUs, load {}; inference has {:.0f} GPUs\n",
                  plural(trace.jobs.size(), "job"), format_duration(trace.span_s), elastic_jobs(trace),
                  policy.train_gpus(), share_text(trace, load(trace, policy), 0), policy.inference_gpus());
  if (!has_shares(trace))
    text += "all jobs come at once: load and usage, which are of the time until the last one, cannot be said\n";
  if (trace.without_gpus > 0) text += fmt::format("{} without GPUs left out\n", plural(trace.without_gpus, "row"));
  TextTable table(
      columns("scheduler|queue mean>|p95>|JCT mean>|p95>|usage>|preemptions>|nodes reclaimed>|longest request>|slowest "
              "decision>"));
  for (const Outcome& outcome : outcomes) {
    const Times times = times_of(trace, outcome);
    const double slowest_s = std::max({outcome.schedule.max_s, outcome.victims.max_s, outcome.extra.max_s});
    table.row({std::string(outcome.scheduler), format_duration(times.queue.mean_s), format_duration(times.queue.p95_s),
               format_duration(times.completion.mean_s), format_duration(times.completion.p95_s),
               share_text(trace, outcome.usage, 1), std::to_string(outcome.preemptions),
               std::to_string(outcome.reclaimed_nodes), format_duration(outcome.request_wait_max_s),
               format_duration(slowest_s)});
  }
  return text + table.str();
}

Json replay_json(const JobTrace& trace, const Policy& policy, std::span<const Outcome> outcomes) {
  Json json{{"schema", 1},
            {"jobs", trace.jobs.size()},
            {"elastic_jobs", elastic_jobs(trace)},
            {"rows_without_gpus", trace.without_gpus},
            {"span_s", trace.span_s},
            {"load", share_json(trace, load(trace, policy))},
            {"schedulers", Json::array()}};
  for (const Outcome& outcome : outcomes) {
    const Times times = times_of(trace, outcome);
    json["schedulers"].push_back({{"scheduler", outcome.scheduler},
                                  {"queue_mean_s", times.queue.mean_s},
                                  {"queue_p95_s", times.queue.p95_s},
                                  {"jct_mean_s", times.completion.mean_s},
                                  {"jct_p95_s", times.completion.p95_s},
                                  {"usage", share_json(trace, outcome.usage)},
                                  {"training_usage", share_json(trace, outcome.training_usage)},
                                  {"preemptions", outcome.preemptions},
                                  {"reclaimed_nodes", outcome.reclaimed_nodes},
                                  {"request_wait_max_s", outcome.request_wait_max_s},
                                  {"decisions",
                                   {{"schedule", decisions_json(outcome.schedule)},
                                    {"victims", decisions_json(outcome.victims)},
                                    {"extra", decisions_json(outcome.extra)}}}});
  }
  return json;
}

std::string samples_csv(const JobTrace& trace, std::span<const Outcome> outcomes) {
  std::string text =
      "scheduler,time_s,own_busy_gpus,loaned_busy_gpus,extra_gpus,loaned_nodes,demand_nodes,waiting_jobs\n";
  for (const Outcome& outcome : outcomes) {
    auto next = outcome.samples.begin();
    for (double time_s = 0; time_s <= trace.span_s; time_s += kSample_s) {
      if (next != outcome.samples.end() && next->time_s <= time_s) ++next;
      const Sample& sample = *std::prev(next);
      text += fmt::format("{},{:.0f},{},{},{},{},{},{}\n", outcome.scheduler, time_s, sample.own_busy_gpus,
                          sample.loaned_busy_gpus, sample.extra_gpus, sample.loaned_nodes, sample.demand_nodes,
                          sample.waiting_jobs);
    }
  }
  return text;
}

}  // namespace ms::loan
