#include "comm/inquiry.h"

#include <algorithm>
#include <map>
#include <set>

#include "comm/first_cause.h"

namespace ms::comm {

std::vector<Wait> oldest(std::vector<AgedWait> waits) {
  std::ranges::stable_sort(waits, {}, &AgedWait::since);
  std::vector<Wait> found;
  for (AgedWait& aged : waits) {
    if (found.size() == Inquiry::kMostWaits) break;
    const auto is_same = [&](const Wait& wait) { return wait.peer == aged.wait.peer && wait.group == aged.wait.group; };
    if (std::ranges::none_of(found, is_same)) found.push_back(std::move(aged.wait));
  }
  return found;
}

Inquiry::Inquiry(int rank, std::chrono::nanoseconds waited, const std::vector<int>& peers, const Wait& wait)
    : rank_(rank), waited_(waited), peers_(peers) {
  for (const int peer : peers) {
    if (questions_.size() == kMostWaits) break;
    questions_.push_back({rank, questions_.size(), wait, std::nullopt});
    questions_.back().wait.peer = peer;
  }
}

std::optional<Wait> Inquiry::next_question() {
  if (asked_ == questions_.size()) return std::nullopt;
  return questions_[asked_++].wait;
}

void Inquiry::add_answer(int from, int group, std::uint64_t sequence, WaitReport report) {
  for (std::size_t i = 0; i < asked_; ++i) {
    const Wait& wait = questions_[i].wait;
    if (questions_[i].report || wait.peer != from || wait.group != group || wait.sequence != sequence) continue;
    const bool first = std::ranges::none_of(
        questions_, [&](const Question& question) { return question.wait.peer == from && question.report; });
    questions_[i].report = report;
    if (first) add(from, i, report.waits);  // may move the questions
  }
}

void Inquiry::add(int from, std::size_t before, const std::vector<Wait>& waits) {
  for (std::size_t k = 0; k < std::min(waits.size(), kMostWaits) && questions_.size() < kMostQuestions; ++k)
    questions_.push_back({from, before, waits[k], std::nullopt});
}

bool Inquiry::all_answered() const {
  return asked_ == questions_.size() &&
         std::ranges::all_of(questions_, [](const Question& question) { return question.report.has_value(); });
}

bool Inquiry::is_excused() const {
  return has_busy() || (all_answered() &&
                        std::ranges::any_of(questions_, [](const Question& question) { return question.wait.recent; }));
}

bool Inquiry::has_busy() const {
  return all_answered() &&
         std::ranges::any_of(questions_, [](const Question& question) { return !question.report->busy.empty(); });
}

std::set<int> Inquiry::reached_from(int from, bool also_recent) const {
  std::set<int> reached;
  std::vector<int> next{from};
  while (!next.empty()) {
    const int rank = next.back();
    next.pop_back();
    for (const Question& question : questions_) {
      if (question.from != rank || (question.wait.recent && !also_recent)) continue;
      if (reached.insert(question.wait.peer).second) next.push_back(question.wait.peer);
    }
  }
  return reached;
}

Inquiry::Found Inquiry::at_fault() const {
  const auto chosen = [&](const auto& is_at_fault) {
    Found found;
    std::set<int> ranks;
    for (std::size_t i = 0; i < questions_.size(); ++i) {
      if (is_at_fault(questions_[i]) && ranks.insert(questions_[i].wait.peer).second) found.questions.push_back(i);
    }
    return found;
  };
  const auto answered = [&](int rank) {
    return std::ranges::any_of(questions_,
                               [&](const Question& other) { return other.wait.peer == rank && other.report; });
  };
  Found found = chosen([&](const Question& question) { return !question.report && !answered(question.wait.peer); });
  if (!found.questions.empty()) {
    found.why = found.questions.size() == 1 ? "does not answer" : "do not answer";
    return found;
  }
  // A rank that others have not waited for long may be on its way.
  const std::set<int> waited_for = reached_from(rank_, false);
  const auto waits = [&](int rank) {
    return std::ranges::any_of(questions_, [&](const Question& other) {
      return other.wait.peer == rank && other.report && !other.report->waits.empty();
    });
  };
  found = chosen([&](const Question& question) {
    return question.report && !waits(question.wait.peer) && waited_for.contains(question.wait.peer);
  });
  if (!found.questions.empty()) {
    const std::vector<std::size_t>& all = found.questions;
    const bool issued = std::ranges::all_of(all, [&](std::size_t i) { return questions_[i].report->issued; });
    found.why = fmt::format("{} for no other rank and {}", all.size() == 1 ? "waits" : "wait",
                            issued ? "had not finished earlier operations" : "had not issued the operation");
    if (const std::string& busy = questions_[all.front()].report->busy; !busy.empty() && all.size() == 1)
      found.why += fmt::format(": it {}", busy);
    return found;
  }
  return in_cycle();
}

// All wait. Those whose waits lead back to them are the cause of the others' waits.
Inquiry::Found Inquiry::in_cycle() const {
  std::map<int, std::set<int>> reached;
  for (const int rank : reached_from(rank_, true)) reached[rank] = reached_from(rank, true);
  std::set<int> cycle;
  for (const auto& [rank, further] : reached) {
    const auto leads_back = [&, rank = rank](int peer) { return reached.at(peer).contains(rank); };
    if (further.contains(rank) && std::ranges::all_of(further, leads_back)) cycle.insert(rank);
  }
  const auto is_in = [&](const Question& question) {
    return cycle.contains(question.from) && cycle.contains(question.wait.peer);
  };
  if (std::ranges::any_of(questions_, [&](const Question& question) {
        return is_in(question) && (!question.report || question.wait.recent);
      }))
    return {};
  // An operation is stuck by itself if everybody whom it waits for waits in it, too.
  const auto waits_in = [&](int rank, const Wait& wait) {
    return std::ranges::any_of(questions_, [&](const Question& other) {
      return other.from == rank && other.wait.group == wait.group && other.wait.sequence == wait.sequence;
    });
  };
  for (std::size_t i = 0; i < questions_.size(); ++i) {
    if (!is_in(questions_[i])) continue;
    const Wait& wait = questions_[i].wait;
    Found stuck{.questions = {}, .why = {}, .stuck = true};
    std::set<int> ranks;
    bool all_wait = true;
    for (std::size_t k = 0; k < questions_.size(); ++k) {
      const Question& other = questions_[k];
      if (other.wait.group != wait.group || other.wait.sequence != wait.sequence) continue;
      all_wait = all_wait && other.report && other.report->issued && waits_in(other.wait.peer, wait);
      if (ranks.insert(other.wait.peer).second) stuck.questions.push_back(k);
    }
    if (!all_wait) continue;
    stuck.why = fmt::format("wait for each other in {}: which of them is at fault cannot be told", wait.what);
    return stuck;
  }
  // Hosts run ahead of their streams, so the rank that stalled has issued least. Where several have not issued what
  // they are waited for in, each may be the consequence of another.
  Found found;
  std::set<int> ranks;
  for (std::size_t i = questions_.size(); i-- > 0;) {
    const Question& question = questions_[i];
    if (is_in(question) && !question.report->issued && ranks.insert(question.wait.peer).second)
      found.questions.push_back(i);
  }
  if (found.questions.size() != 1) return {};
  found.why = "had not issued the operation";
  return found;
}

// Returns "; rank 2 waits for rank 3 in <operation>" for each rank between the first wait and this one; only the last
// ones of a long chain.
std::string Inquiry::path_to(std::size_t question) const {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> path;
  for (std::size_t at = question; questions_[at].before != at; at = questions_[at].before) {
    const Question& step = questions_[at];
    path.push_back(fmt::format("; rank {} waits for rank {} in {}", step.from, step.wait.peer, step.wait.what));
  }
  std::string text;
  if (path.size() > kShown) {
    text = fmt::format("; {} more waits", path.size() - kShown);
    path.resize(kShown);
  }
  for (auto step = path.rbegin(); step != path.rend(); ++step) text += *step;
  return text;
}

Error Inquiry::error() const {
  const Found found = at_fault();
  const Error waited = deadline_error(rank_, waited_, peers_, questions_.front().wait.what);
  if (found.questions.empty()) {  // the ranks disagree about the order, or are late
    const bool is_recent =
        std::ranges::any_of(questions_, [](const Question& question) { return question.wait.recent; });
    return Error(waited.kind(), waited.blame(),
                 waited.message() +
                     (is_recent
                          ? "; some of the ranks asked began to wait only recently, so the rank at fault is not known"
                          : "; all ranks asked wait for each other"))
        .with_operation(waited.operation());
  }
  std::vector<int> ranks;
  for (const std::size_t i : found.questions) ranks.push_back(questions_[i].wait.peer);
  std::ranges::sort(ranks);
  const Question& last = questions_[found.questions.front()];
  const std::string path = ranks.size() == 1 ? path_to(found.questions.front()) : "";
  const Error error = Error(waited.kind(), waited.blame(),
                            fmt::format("{}{}; {} {}", waited.message(), path, rank_list(ranks), found.why))
                          .with_operation(ranks.size() == 1 || found.stuck ? last.wait.what : waited.operation());
  return ranks.size() == 1 && !found.stuck ? error.with_rank(ranks.front()) : error;
}

}  // namespace ms::comm
