#include "train/commands/show_failures.h"

#include <array>

#include "base/json.h"
#include "base/text.h"

namespace ms::train {
namespace {

struct PartRow {
  TimePart part;
  std::string_view name;
  std::string_view meaning;
};
constexpr std::array<PartRow, kTimeParts> kPartRows{{
    {TimePart::trained, "effective", "steps that were not lost"},
    {TimePart::detect, "detect", "from a fault to its alarm"},
    {TimePart::diagnose, "diagnose", "to find the node; the operator's time, too"},
    {TimePart::restart, "restart", "launches, loads, back-off, the queue"},
    {TimePart::lost, "lost", "steps since the checkpoint, repeated"},
    {TimePart::save, "save", "training waits for saves"},
    {TimePart::waiting, "waiting", "fewer healthy nodes than the job needs"},
    {TimePart::slow, "slow", "slow nodes"},
    {TimePart::storage, "storage", "the checkpoint cannot be loaded: storage outage"},
    {TimePart::shrunk, "shrunk", "training on fewer nodes than the full size"},
}};

std::string share_text(double share) { return fmt::format("{:.2f} %", 100 * share); }
std::string estimate_text(const Estimate& e) {
  return e.error ? fmt::format("{:.2f} +- {:.2f} %", 100 * e.mean, 100 * *e.error) : share_text(e.mean);
}
Json error_json(const Estimate& e) { return e.error ? Json(*e.error) : Json(nullptr); }

Json interval_json(const IntervalChoice& row) {
  return Json{{"interval_s", row.interval_s},
              {"effective", row.effective.mean},
              {"effective_error", error_json(row.effective)},
              {"lost", row.lost},
              {"save", row.save}};
}

}  // namespace

std::string failures_text(const FailureStudy& study) {
  const JobOptions& job = study.job;
  std::string out;
  const auto line = [&](std::string_view name, const std::string& value) {
    out += fmt::format("{:<12}{}\n", name, value);
  };
  line("job", fmt::format("{} and {}, {}, {:.4g} s a step, saves every {}", plural(std::size_t(job.nodes), "node"),
                          plural(std::size_t(job.spares), "spare"), job.driver ? "with ms-driver" : "without a driver",
                          job.iteration_s, format_duration(job.interval_s)));
  line("faults",
       fmt::format("{:.2f} in 1000 node-days, {}; in {} runs of {:g} days", 1000 * study.per_node_day,
                   study.mean_repair_s > 0 ? fmt::format("repaired in {}", format_duration(study.mean_repair_s))
                                           : "no time for repair (RATE:TIME sets it)",
                   study.seeds, job.seconds / kSecondsPerDay));
  if (study.storage.per_day > 0) {
    line("storage", fmt::format("{:g} outages per day, {} on average; saves fail in them", study.storage.per_day,
                                format_duration(study.storage.mean_s)));
  }
  if (!job.smaller.empty()) {
    std::string sizes;
    for (const SmallerSize& size : job.smaller) {
      sizes += fmt::format("{}{} ({:.2f} times as long a step)", sizes.empty() ? "" : ", ",
                           plural(std::size_t(size.nodes), "node"), size.slower);
    }
    line("smaller", fmt::format("{}; it shrank {:.1f} times", sizes, study.shrinks));
  }
  const Estimate& times = study.interruptions;
  line("interrupted",
       fmt::format("{:.1f}{} times, {:.1f} requeues, the driver gave up {:.1f} times", times.mean,
                   times.error ? fmt::format(" +- {:.1f}", *times.error) : "", study.requeues, study.given_up));
  line("effective", fmt::format("{} of the time{}", estimate_text(study.effective),
                                study.effective.error ? " (two standard errors)" : "; --seeds 2 or more gives errors"));
  out += '\n';
  TextTable parts(columns("of the time|share>|hours>|what"));
  for (const PartRow& row : kPartRows) {
    const double share = study.shares[static_cast<std::size_t>(row.part)];
    parts.row({std::string(row.name), share_text(share), fmt::format("{:.1f}", share * job.seconds / 3600),
               std::string(row.meaning)});
  }
  out += parts.str() + '\n';
  TextTable intervals(columns("save every|effective>|lost>|save>|"));
  for (std::size_t i = 0; i < study.intervals.size(); ++i) {
    const IntervalChoice& row = study.intervals[i];
    intervals.row({format_duration(row.interval_s), estimate_text(row.effective), share_text(row.lost),
                   share_text(row.save),
                   fmt::format("{}{}", i == study.best_interval ? "best " : "",
                               study.daly == i ? "by Daly's formula (FGCS 22, 2006)" : "")});
  }
  out += intervals.str() + '\n';
  TextTable spares(columns("spares>|effective>|waiting>|requeues>|of all nodes held>|"));
  for (std::size_t i = 0; i < study.spares.size(); ++i) {
    const SpareChoice& row = study.spares[i];
    spares.row({std::to_string(row.spares), estimate_text(row.effective), share_text(row.waiting),
                fmt::format("{:.1f}", row.requeues), share_text(row.of_held), i == study.best_spares ? "best" : ""});
  }
  return out + spares.str();
}

std::string failures_json(const FailureStudy& study) {
  const JobOptions& job = study.job;
  Json json{{"schema", 1},
            {"nodes", job.nodes},
            {"spares", job.spares},
            {"days", job.seconds / kSecondsPerDay},
            {"driver", job.driver},
            {"seeds", study.seeds},
            {"iteration_s", job.iteration_s},
            {"interval_s", job.interval_s},
            {"effective", study.effective.mean},
            {"effective_error", error_json(study.effective)}};
  for (const PartRow& row : kPartRows) { json["parts"][row.name] = study.shares[static_cast<std::size_t>(row.part)]; }
  json["interruptions"] = study.interruptions.mean;
  json["requeues"] = study.requeues;
  json["given_up"] = study.given_up;
  json["shrinks"] = study.shrinks;
  json["storage_outages"] = Json{{"per_day", study.storage.per_day}, {"mean_s", study.storage.mean_s}};
  json["smaller_sizes"] = Json::array();
  for (const SmallerSize& size : job.smaller) {
    json["smaller_sizes"].push_back(Json{{"nodes", size.nodes}, {"slower", size.slower}});
  }
  json["faults"] = Json{{"per_node_day", study.per_node_day}, {"mean_repair_s", study.mean_repair_s}};
  json["intervals"] = Json::array();
  for (const IntervalChoice& row : study.intervals) json["intervals"].push_back(interval_json(row));
  json["best_interval_s"] = study.intervals[study.best_interval].interval_s;
  if (study.daly) json["daly"] = interval_json(study.intervals[*study.daly]);
  json["spare_choices"] = Json::array();
  for (const SpareChoice& row : study.spares) {
    json["spare_choices"].push_back(Json{{"spares", row.spares},
                                         {"effective", row.effective.mean},
                                         {"effective_error", error_json(row.effective)},
                                         {"waiting", row.waiting},
                                         {"requeues", row.requeues},
                                         {"of_held", row.of_held}});
  }
  json["best_spares"] = study.spares[study.best_spares].spares;
  return json.dump(2) + "\n";
}

}  // namespace ms::train
