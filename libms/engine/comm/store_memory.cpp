#include "comm/store_memory.h"

namespace ms::comm {

void KeyValueTable::post(int rank, std::string key, std::string value) {
  std::lock_guard lock(mutex_);
  values_.insert_or_assign({rank, std::move(key)}, std::move(value));
  changed_.notify_all();
}

std::string KeyValueTable::get(int reader, int rank, std::string_view key, std::chrono::milliseconds deadline) {
  const std::pair<int, std::string> name(rank, key);
  std::unique_lock lock(mutex_);
  const bool settled = changed_.wait_for(lock, deadline, [&] { return values_.contains(name) || cause_.stopped(); });
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second;
  if (settled) throw cause_.error_for(reader);
  throw store_deadline_error(reader, rank, key, deadline);
}

void KeyValueTable::stop() {
  std::lock_guard lock(mutex_);  // else a reader between its check and its wait would miss the notification
  changed_.notify_all();
}

}  // namespace ms::comm
