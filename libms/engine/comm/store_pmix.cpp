// The only source that includes pmix.h. The header explains what PMIx servers do and why get() polls.
#include "comm/store_pmix.h"

#include <pmix.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"

namespace ms::comm {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::string_view kKeyPrefix = "ms.";  // MPI publishes under keys of its own
static_assert(kKeyPrefix.size() + kMaxStoreKeyBytes <= PMIX_MAX_KEYLEN);
constexpr auto kLookPeriod = 10ms;    // how late a waiting get() may notice an abort
constexpr auto kServerPatience = 1s;  // for an answer that the server need not wait for
// The pause between two requests for a missing value: an eighth of the time already waited, so that many ranks that
// wait long do not flood one server.
constexpr std::chrono::nanoseconds kShortestPause = 1ms;
constexpr std::chrono::nanoseconds kLongestPause = 250ms;

Error pmix_error(pmix_status_t status, const std::string& call) {
  return Error("comm.store", Blame::fabric, fmt::format("{}: {} ({})", call, PMIx_Error_string(status), status));
}
void pmix_check(pmix_status_t status, const std::string& call) {
  if (status != PMIX_SUCCESS) throw pmix_error(status, call);
}

// A request and the answer of PMIx's own thread. Shared with that thread, which reads the request in place and may
// answer long after the reader has gone.
struct Question {
  std::string key;
  pmix_proc_t owner{};
  int timeout_s = 0;
  pmix_info_t how{};  // the timeout, or PMIX_IMMEDIATE where it is 0

  std::mutex mutex;  // guards the answer
  std::condition_variable arrived;
  bool here = false;
  pmix_status_t status = PMIX_SUCCESS;
  std::string value;
};

void take_answer(pmix_status_t status, pmix_value_t* value, void* data) noexcept {
  const std::unique_ptr<std::shared_ptr<Question>> holder(static_cast<std::shared_ptr<Question>*>(data));
  Question& question = **holder;
  std::lock_guard lock(question.mutex);
  question.status = status;
  if (status == PMIX_SUCCESS && (value == nullptr || value->type != PMIX_BYTE_OBJECT)) {
    question.status = PMIX_ERR_TYPE_MISMATCH;
  } else if (status == PMIX_SUCCESS) {
    question.value.assign(value->data.bo.bytes, value->data.bo.size);
  }
  question.here = true;
  question.arrived.notify_all();
}

class Client final : public PmixStore {
 public:
  Client(const pmix_proc_t& self, const FirstCause& cause) : self_(self), cause_(cause) {}

  void put(std::string_view key, std::string_view value) override {
    check_publishable(key, value);
    pending_.emplace_back(key, value);
  }

  // PMIx shows a rank its own values as soon as they are put, so put() only collects them.
  void commit() override {
    for (auto& [key, bytes] : std::exchange(pending_, {})) {
      pmix_value_t value{};
      value.type = PMIX_BYTE_OBJECT;
      value.data.bo = {bytes.data(), bytes.size()};  // PMIx copies
      pmix_check(PMIx_Put(PMIX_GLOBAL, name_of(key).c_str(), &value), "PMIx_Put of '" + key + "'");
    }
    pmix_check(PMIx_Commit(), "PMIx_Commit");
  }

  std::string get(int rank, std::string_view key, std::chrono::milliseconds deadline) override {
    if (std::optional<std::string> value = find(rank, key, deadline)) return *std::move(value);
    throw store_deadline_error(static_cast<int>(self_.rank), rank, key, deadline);
  }

  std::vector<int> ranks_on_node() const override {
    pmix_proc_t all{};
    PMIX_LOAD_PROCID(&all, self_.nspace, PMIX_RANK_WILDCARD);
    pmix_value_t* value = nullptr;
    std::vector<int> ranks;
    if (PMIx_Get(&all, PMIX_LOCAL_PEERS, nullptr, 0, &value) != PMIX_SUCCESS) return ranks;
    if (value->type == PMIX_STRING && value->data.string != nullptr) {
      for (const std::string& rank : ms::split(value->data.string, ',')) ranks.push_back(std::atoi(rank.c_str()));
    }
    PMIX_VALUE_RELEASE(value);
    return ranks;
  }

  std::optional<std::string> find(int rank, std::string_view key, std::chrono::milliseconds deadline) override {
    const bool once = deadline == 0ms;
    const steady_clock::time_point begin = steady_clock::now(), end = begin + (once ? kServerPatience : deadline);
    while (true) {
      const std::shared_ptr<Question> question = ask(rank, key, deadline);
      std::unique_lock lock(question->mutex);
      while (!question->here) {
        if (is_over(end)) return std::nullopt;
        question->arrived.wait_until(lock, std::min(end, steady_clock::now() + kLookPeriod));
      }
      if (question->status == PMIX_SUCCESS) return question->value;
      if (question->status != PMIX_ERR_NOT_FOUND && question->status != PMIX_ERR_TIMEOUT) {
        throw pmix_error(question->status, fmt::format("PMIx_Get of '{}' from rank {}", key, rank));
      }
      if (once) return std::nullopt;
      lock.unlock();
      const auto waited = steady_clock::now() - begin;
      const auto again = std::min(
          end, steady_clock::now() + std::clamp<std::chrono::nanoseconds>(waited / 8, kShortestPause, kLongestPause));
      do {
        if (is_over(end)) return std::nullopt;
        std::this_thread::sleep_until(std::min(again, steady_clock::now() + kLookPeriod));
      } while (steady_clock::now() < again);
    }
  }

  void close() override { pmix_check(PMIx_Finalize(nullptr, 0), "PMIx_Finalize"); }

 private:
  static std::string name_of(std::string_view key) { return fmt::format("{}{}", kKeyPrefix, key); }

  bool is_over(steady_clock::time_point end) const {
    if (cause_.stopped()) throw cause_.error_for(static_cast<int>(self_.rank));
    return steady_clock::now() >= end;
  }

  std::shared_ptr<Question> ask(int rank, std::string_view key, std::chrono::milliseconds deadline) const {
    auto question = std::make_shared<Question>();
    question->key = name_of(key);
    PMIX_LOAD_PROCID(&question->owner, self_.nspace, static_cast<pmix_rank_t>(rank));
    // The server drops the request after this time; nothing relies on it being punctual.
    question->timeout_s = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(deadline).count());
    const bool immediate = deadline == 0ms;
    if (immediate) {
      PMIX_INFO_LOAD(&question->how, PMIX_IMMEDIATE, &immediate, PMIX_BOOL);
    } else {
      PMIX_INFO_LOAD(&question->how, PMIX_TIMEOUT, &question->timeout_s, PMIX_INT);
    }
    auto holder = std::make_unique<std::shared_ptr<Question>>(question);
    const pmix_status_t asked =
        PMIx_Get_nb(&question->owner, question->key.c_str(), &question->how, 1, take_answer, holder.get());
    if (asked == PMIX_SUCCESS) {
      holder.release();  // take_answer() owns it
    } else {             // take_answer() will not be called
      question->status = asked;
      question->here = true;
    }
    return question;
  }

  const pmix_proc_t self_;
  const FirstCause& cause_;
  std::vector<std::pair<std::string, std::string>> pending_;
};

bool has_server() { return std::getenv("PMIX_RANK") != nullptr && std::getenv("PMIX_NAMESPACE") != nullptr; }

}  // namespace

void pmix_barrier(std::chrono::milliseconds deadline) {
  if (!has_server()) return;
  pmix_proc_t self{}, all{};
  pmix_check(PMIx_Init(&self, nullptr, 0), "PMIx_Init");
  PMIX_LOAD_PROCID(&all, self.nspace, PMIX_RANK_WILDCARD);
  // Slurm's fence is no barrier unless it collects data. Both objects outlive this call if other processes never join.
  struct Fence {
    pmix_info_t collect{};
    std::promise<pmix_status_t> met;
  };
  const auto fence = std::make_shared<Fence>();
  const bool yes = true;
  PMIX_INFO_LOAD(&fence->collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
  std::future<pmix_status_t> met = fence->met.get_future();
  auto holder = std::make_unique<std::shared_ptr<Fence>>(fence);
  const auto on_fence = [](pmix_status_t status, void* data) {
    const std::unique_ptr<std::shared_ptr<Fence>> of(static_cast<std::shared_ptr<Fence>*>(data));
    (*of)->met.set_value(status);
  };
  pmix_check(PMIx_Fence_nb(&all, 1, &fence->collect, 1, on_fence, holder.get()), "PMIx_Fence");
  holder.release();  // `on_fence` owns it
  if (met.wait_for(deadline) != std::future_status::ready) {
    throw Error("comm.deadline", Blame::peer,
                fmt::format("not all processes of the launch joined PMIx within {:.1f} s",
                            std::chrono::duration<double>(deadline).count()));
  }
  pmix_check(met.get(), "PMIx_Fence");
  pmix_check(PMIx_Finalize(nullptr, 0), "PMIx_Finalize");
}

std::unique_ptr<PmixStore> open_pmix_store(int rank, const FirstCause& cause) {
  if (!has_server()) return nullptr;
  pmix_proc_t self{};
  pmix_check(PMIx_Init(&self, nullptr, 0), "PMIx_Init");
  if (self.rank != static_cast<pmix_rank_t>(rank)) {
    throw Error("comm.store", Blame::fabric, fmt::format("MPI rank {} is PMIx rank {}", rank, self.rank));
  }
  return std::make_unique<Client>(self, cause);
}

}  // namespace ms::comm
