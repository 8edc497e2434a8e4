#include "comm/inquiry.h"

#include <algorithm>
#include <set>

#include "comm/first_cause.h"

namespace ms::comm {

std::vector<Wait> oldest(std::vector<AgedWait> waits) {
  std::ranges::stable_sort(waits, {}, &AgedWait::since);
  std::vector<Wait> found;
  for (AgedWait& aged : waits) {
    if (found.size() == Inquiry::kMostWaits) break;
    if (std::ranges::find(found, aged.wait.peer, &Wait::peer) == found.end()) found.push_back(std::move(aged.wait));
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
  return all_answered() &&
         std::ranges::any_of(questions_, [](const Question& question) { return !question.report->busy.empty(); });
}

// Returns the indices of the questions that lead to the ranks at fault, one for each of them.
std::vector<std::size_t> Inquiry::at_fault(std::string& why) const {
  const auto chosen = [&](const auto& is_at_fault) {
    std::vector<std::size_t> found;
    std::set<int> ranks;
    for (std::size_t i = 0; i < questions_.size(); ++i)
      if (is_at_fault(questions_[i]) && ranks.insert(questions_[i].wait.peer).second) found.push_back(i);
    return found;
  };
  const auto answered = [&](int rank) {
    return std::ranges::any_of(questions_,
                               [&](const Question& other) { return other.wait.peer == rank && other.report; });
  };
  std::vector<std::size_t> found =
      chosen([&](const Question& question) { return !question.report && !answered(question.wait.peer); });
  if (!found.empty()) {
    why = found.size() == 1 ? "does not answer" : "do not answer";
    return found;
  }
  found = chosen([](const Question& question) { return question.report && question.report->waits.empty(); });
  if (!found.empty()) {
    const bool issued = std::ranges::all_of(found, [&](std::size_t i) { return questions_[i].report->issued; });
    why = fmt::format("{} for no other rank and {}", found.size() == 1 ? "waits" : "wait",
                      issued ? "had not finished earlier operations" : "had not issued the operation");
    if (const std::string& busy = questions_[found.front()].report->busy; !busy.empty() && found.size() == 1)
      why += fmt::format(": it {}", busy);
    return found;
  }
  // All wait in a cycle. Hosts run ahead of their streams, so the rank that stalled has issued least.
  for (std::size_t i = questions_.size(); i-- > 0;) {
    if (!questions_[i].report || questions_[i].report->issued) continue;
    why = "had not issued the operation";
    return {i};
  }
  return {};
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
  std::string why;
  const std::vector<std::size_t> found = at_fault(why);
  const Error waited = deadline_error(rank_, waited_, peers_, questions_.front().wait.what);
  if (found.empty()) {  // a transfer is stuck, or the ranks disagree about the order: no rank is more at fault than
                        // another
    return Error(waited.kind(), waited.blame(), waited.message() + "; all ranks asked wait for each other")
        .with_operation(waited.operation());
  }
  std::vector<int> ranks;
  for (const std::size_t i : found) ranks.push_back(questions_[i].wait.peer);
  std::ranges::sort(ranks);
  const Question& last = questions_[found.front()];
  const std::string path = found.size() == 1 ? path_to(found.front()) : "";
  const Error error =
      Error(waited.kind(), waited.blame(), fmt::format("{}{}; {} {}", waited.message(), path, rank_list(ranks), why))
          .with_operation(found.size() == 1 ? last.wait.what : waited.operation());
  return ranks.size() == 1 ? error.with_rank(ranks.front()) : error;
}

}  // namespace ms::comm
