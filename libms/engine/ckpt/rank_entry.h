// A rank's contribution to the manifest. It is gathered to rank 0 in a slot of the size that all ranks use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/error.h"

namespace ms::ckpt {

struct RankEntry {   // of a rank that holds no pieces: empty
  std::string json;  // of its FileEntry
  std::int64_t size_bytes = 0;
};

// A slot begins with two numbers; the text follows, then padding.
struct SlotHead {
  std::int64_t json_bytes = 0, size_bytes = 0;
};

inline void pack(const RankEntry& entry, std::span<std::byte> slot) {
  const SlotHead head{static_cast<std::int64_t>(entry.json.size()), entry.size_bytes};
  MS_ASSERT(sizeof head + entry.json.size() <= slot.size(), "an entry of {} bytes, where {} were enough",
            entry.json.size(), slot.size() - sizeof head);
  std::memcpy(slot.data(), &head, sizeof head);
  std::memcpy(slot.data() + sizeof head, entry.json.data(), entry.json.size());
}

inline RankEntry unpack(std::span<const std::byte> slot) {
  SlotHead head;
  std::memcpy(&head, slot.data(), sizeof head);
  MS_ASSERT(head.json_bytes >= 0 && sizeof head + static_cast<std::size_t>(head.json_bytes) <= slot.size(),
            "an entry of {} bytes in a slot of {}", head.json_bytes, slot.size());
  const std::span<const std::byte> json = slot.subspan(sizeof head, static_cast<std::size_t>(head.json_bytes));
  return {{reinterpret_cast<const char*>(json.data()), json.size()}, head.size_bytes};
}

}  // namespace ms::ckpt
