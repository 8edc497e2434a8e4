#include "data/encode_workers.h"

#include <sched.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace ms::data {
namespace {

// Memory of a thread.
struct Scratch {
  std::string line_text;
  ChatEncoder::Scratch chat;
};

// Appends the tokens of a line of JSON, and sets how much text it has.
std::optional<JsonLineProblem> encode_line(std::string_view line, TextBatch& batch, TextItem& item,
                                           const Tokenizer& tokenizer, const ChatEncoder* chat,
                                           const ImageEncoder* images, JsonLine& json, Scratch& scratch) {
  if (chat != nullptr) {
    auto problem = chat->encode(line, batch.tokens, scratch.chat);
    if (!problem) item.end = scratch.chat.chat.text.size();
    item.has_control = !problem && scratch.chat.has_control;
    return problem;
  }
  auto problem = json.read(line, scratch.line_text);
  if (problem) return problem;
  if (images != nullptr) return images->encode(line, scratch.line_text, batch, item);
  item.end = scratch.line_text.size();
  item.is_utf8 = tokenizer.encode(scratch.line_text, batch.tokens);
  return std::nullopt;
}

void encode_batch(TextBatch& batch, const Tokenizer& tokenizer, const ChatEncoder* chat, const ImageEncoder* images,
                  JsonLine& json, Scratch& scratch) {
  for (TextItem& item : batch.items) {
    const std::string_view text = std::string_view(batch.text).substr(item.begin, item.end - item.begin);
    if (item.kind == TextItem::Kind::text) {
      item.is_utf8 = tokenizer.encode(text, batch.tokens);
    } else if (item.kind == TextItem::Kind::json) {
      if (auto problem = encode_line(text, batch, item, tokenizer, chat, images, json, scratch)) {
        item.kind = TextItem::Kind::bad_json;
        item.begin = problem->column.value_or(0);
        item.problem = std::move(problem->what);
        item.hint = std::move(problem->hint);
      }
    }
    item.tokens_end = batch.tokens.size();
  }
}

}  // namespace

int default_workers() {
  constexpr int kMostWorkers = 64;  // one thread reads for all
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::clamp(CPU_COUNT(&set), 1, kMostWorkers);
}

EncodeWorkers::EncodeWorkers(int count, const Tokenizer& tokenizer, const std::vector<std::string>& fields,
                             const ChatEncoder* chat, const ImageEncoder* images)
    : tokenizer_(tokenizer), chat_(chat), images_(images) {
  for (int i = 0; i < count; ++i)
    threads_.emplace_back([this, json = JsonLine(fields)](const std::stop_token& stop) mutable { run(stop, json); });
}

EncodeWorkers::~EncodeWorkers() = default;  // jthreads: ask to stop, then join

void EncodeWorkers::run(const std::stop_token& stop, JsonLine& json) {
  Scratch scratch;
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
    TextBatch& batch = *waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    try {  // the trampoline of this thread: wait() throws it to the caller
      encode_batch(batch, tokenizer_, chat_, images_, json, scratch);
    } catch (...) { batch.failure = std::current_exception(); }
    lock.lock();
    done_.insert(&batch);
    changed_.notify_all();
    if (stop.stop_requested()) return;  // what is waiting is not wanted any more
  }
}

void EncodeWorkers::submit(TextBatch& batch) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(&batch);
  changed_.notify_all();
}

void EncodeWorkers::wait(const TextBatch& batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_.erase(&batch) > 0; });
  if (batch.failure) std::rethrow_exception(batch.failure);
}

}  // namespace ms::data
