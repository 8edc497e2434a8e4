#include "comm/store.h"

namespace ms::comm {

void check_publishable(std::string_view key, std::string_view value) {
  if (!key.empty() && key.size() <= kMaxStoreKeyBytes && value.size() <= kMaxStoreValueBytes &&
      key.find('\0') == std::string_view::npos) {
    return;
  }
  throw Error(
      "comm.store", Blame::bug,
      fmt::format("the value '{}' of {} bytes cannot be published: a key has 1 to {} bytes and no zero byte, a value "
                  "at most {} bytes",
                  key, value.size(), kMaxStoreKeyBytes, kMaxStoreValueBytes));
}

Error store_deadline_error(int reader, int rank, std::string_view key, std::chrono::milliseconds deadline) {
  return Error("comm.store", Blame::peer,
               fmt::format("rank {} waited {:.1f} s for '{}' from rank {}", reader,
                           std::chrono::duration<double>(deadline).count(), key, rank))
      .with_rank(rank);
}

}  // namespace ms::comm
