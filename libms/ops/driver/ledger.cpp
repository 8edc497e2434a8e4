#include "driver/ledger.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "driver/judge.h"
#include "driver/time_spent.h"
#include "slurm/known_lines.h"

namespace ms::driver {
namespace {

// The fields of an attempt, in one place for both directions.
template <class Entry, class F>
void each_field(Entry& a, F&& f) {
  f("number", a.number);
  f("job", a.job);
  f("nodes", a.nodes);
  f("began_s", a.began_s);
  f("first_step_s", a.first_step_s);
  f("alarm_s", a.alarm_s);
  f("ended_s", a.ended_s);
  f("from_step", a.from_step);
  f("to_step", a.to_step);
  f("cause", a.cause);
  f("code", a.code);
  f("why", a.why);
  f("error", a.error);
  f("rank", a.rank);
  f("said_on", a.said_on);
  f("suspects", a.suspects);
  f("excluded", a.excluded);
  f("detect_s", a.detect_s);
  f("diagnose_s", a.diagnose_s);
  f("slow_s", a.slow_s);
  f("recover_s", a.recover_s);
}

// The run can do no more than wait for others.
bool waits_for_others(const AttemptEntry& attempt) {
  return attempt.cause.starts_with(kSlurmCauses) || attempt.cause.starts_with(kStorage);
}

}  // namespace

void Ledger::add(Note note) {
  notes.push_back(std::move(note));
  if (notes.size() > kMostNotes) notes.erase(notes.begin());
}

double Ledger::mean_slow_s(double prior_s) const {
  double sum_s = prior_s;
  int count = 1;
  for (auto ended = notes.begin(); ended != notes.end(); ++ended) {
    if (ended->code != kSlowEnded) continue;
    const auto began = std::find_if(std::reverse_iterator(ended), notes.rend(),
                                    [&](const Note& note) { return note.code == kSlow && note.nodes == ended->nodes; });
    if (began == notes.rend()) continue;
    sum_s += std::max(0.0, ended->at_s - began->at_s);
    ++count;
  }
  return sum_s / count;
}

void Ledger::shift(double seconds) {
  const auto move = [&](double& at_s) { at_s += at_s == 0 ? 0 : seconds; };
  move(began_s);
  for (AttemptEntry& attempt : attempts) {
    for (double* at_s : {&attempt.began_s, &attempt.first_step_s, &attempt.alarm_s, &attempt.ended_s}) move(*at_s);
  }
  for (Note& note : notes) move(note.at_s);
}

void Ledger::close(double at_s) {
  AttemptEntry& last = attempts.back();
  last.ended_s = std::max({last.began_s, last.first_step_s, at_s});
  last.cause = "driver_killed";
  last.why = "the driver was killed, and what became of this attempt is not known";
}

std::int64_t Ledger::best_step() const {
  std::int64_t best = -1;
  for (const AttemptEntry& attempt : attempts) best = std::max(best, attempt.to_step);
  return best;
}

namespace {

// Whether an attempt ended because its ranks waited: how long it lasted is then no progress.
bool has_waited(const AttemptEntry& attempt) {
  return attempt.cause == kHang || attempt.cause == kMismatchCause || attempt.cause == slurm::kCollectiveTimeout;
}

}  // namespace

int Ledger::idle_attempts() const {
  int idle = 0;
  std::int64_t best = -1;
  for (const AttemptEntry& attempt : attempts) {
    if (waits_for_others(attempt) && attempt.to_step <= best) continue;
    // To leave a bad node is a way on too, and has its end in their number.
    if (!attempt.suspects.empty() && attempt.to_step <= best &&
        std::ranges::all_of(attempt.suspects, [&](const std::string& node) { return excluded.contains(node); }))
      continue;
    const bool is_long =
        best < 0 && attempt.to_step < 0 && !has_waited(attempt) && attempt.ended_s - attempt.began_s >= kWorksUnheard_s;
    idle = attempt.to_step > best || is_long ? 0 : idle + 1;
    best = std::max(best, attempt.to_step);
  }
  return idle;
}

int Ledger::waiting_attempts() const {
  int waiting = 0;
  std::int64_t best = -1;
  for (const AttemptEntry& attempt : attempts) {
    if (!waits_for_others(attempt) || attempt.to_step > best) waiting = 0;
    waiting += waits_for_others(attempt);
    best = std::max(best, attempt.to_step);
  }
  return waiting;
}

bool Ledger::ends_again_for(std::string_view cause) const {
  const std::size_t count = attempts.size();
  return count >= 2 && attempts[count - 1].cause == cause && attempts[count - 2].cause == cause && idle_attempts() > 0;
}

Ledger::SameError Ledger::same_error() const {
  SameError same;
  if (attempts.empty() || attempts.back().error.empty()) return same;
  const AttemptEntry& last = attempts.back();
  // Slurm may lose the end of what a rank says, or all of it.
  const auto is_same = [text = slurm::without_numbers(last.error), &last](const AttemptEntry& other) {
    const std::string said = slurm::without_numbers(other.error);
    const bool any_error = other.cause == slurm::kException || other.cause == kHang;
    return other.cause == last.cause && (!any_error || said.starts_with(text) || text.starts_with(said));
  };
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    if (attempt->cause == kWordless && attempt->error.empty()) continue;
    if (attempt->error.empty() || !is_same(*attempt)) break;
    ++same.attempts;
    same.nodes.insert(attempt->said_on.begin(), attempt->said_on.end());
  }
  return same;
}

std::string to_json(const Ledger& ledger, double now_s) {
  Json attempts = Json::array();
  for (const AttemptEntry& attempt : ledger.attempts) {
    Json entry = Json::object();
    each_field(attempt, [&](const char* name, const auto& field) { entry[name] = field; });
    entry["steps"] = std::max<std::int64_t>(0, attempt.to_step - attempt.from_step);
    attempts.push_back(std::move(entry));
  }
  Json json{{"schema", 1}, {"command", ledger.command}, {"began_s", ledger.began_s}};
  const TimeSpent spent = time_spent(ledger, now_s);
  json["effective"] = spent.effective();
  for (const auto& [kind, name] : kSpent) json["time_s"][std::string(name)] = spent[kind];
  json["strikes"] = ledger.strikes;
  json["excluded"] = ledger.excluded;
  json["unheard"] = ledger.unheard;
  json["attempts"] = std::move(attempts);
  json["notes"] = Json::array();
  for (const Note& note : ledger.notes)
    json["notes"].push_back({{"at_s", note.at_s}, {"code", note.code}, {"nodes", note.nodes}, {"text", note.text}});
  return json.dump(2) + "\n";
}

Ledger read_ledger(std::string_view text, const std::string& path) {
  try {
    const Json json = Json::parse(text, {.max_depth = 8});
    if (json.get<int>("schema") != 1) throw JsonError("a schema of another version");
    Ledger ledger;
    json.get_to("command", ledger.command);
    json.get_to("began_s", ledger.began_s);
    json.get_to("strikes", ledger.strikes);
    json.get_to("excluded", ledger.excluded);
    if (json.contains("unheard")) json.get_to("unheard", ledger.unheard);
    for (const Json& entry : json.at("attempts")) {
      AttemptEntry& attempt = ledger.attempts.emplace_back();
      each_field(attempt, [&](const char* name, auto& field) {
        if (entry.contains(name)) entry.get_to(name, field);  // one of an older version has fewer
      });
    }
    if (const Json* notes = json.find("notes")) {
      for (const Json& note : *notes)
        ledger.add({.at_s = note.get<double>("at_s"),
                    .code = note.get<std::string>("code"),
                    .nodes = note.get<std::vector<std::string>>("nodes"),
                    .text = note.get<std::string>("text")});
    }
    return ledger;
  } catch (const JsonError& error) {
    throw Error("driver.ledger", Blame::storage, fmt::format("{} is no ledger: {}", path, error.what()),
                "move it away to begin a new one");
  }
}

}  // namespace ms::driver
