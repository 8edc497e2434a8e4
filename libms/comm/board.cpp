#include "comm/board.h"

namespace ms::comm {

void Board::post(int rank, std::string key, std::string value) {
  std::lock_guard lock(mutex_);
  values_.insert_or_assign({rank, std::move(key)}, std::move(value));
  changed_.notify_all();
}

std::string Board::get(int reader, int rank, std::string_view key, std::chrono::milliseconds deadline) {
  const std::pair<int, std::string> name(rank, key);
  std::unique_lock lock(mutex_);
  const bool settled = changed_.wait_for(lock, deadline, [&] { return values_.contains(name) || cause_.stopped(); });
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  if (settled) throw cause_.error_for(reader);
  throw store_deadline_error(reader, rank, key, deadline);
}

void Board::stop() {
  std::lock_guard lock(mutex_);  // a reader between its test and its wait would miss the notice
  changed_.notify_all();
}

}  // namespace ms::comm
