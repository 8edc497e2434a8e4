// The secret of a check, and the proof that both ends of a connection know it.
#pragma once

#include <string>
#include <string_view>

#include "link/channel.h"

namespace ms::link {

// 32 random bytes, in hexadecimal digits.
std::string new_secret();
// HMAC-SHA256, in hexadecimal digits.
std::string mac_of(std::string_view key, std::string_view text);
// Compares in a time that does not depend on where the two differ.
bool is_same_mac(std::string_view a, std::string_view b);
// Proves the knowledge of the secret to each other, by HMAC-SHA256 over nonces of both. Throws Error("net.secret",
// fabric) where the other end does not know it. `greeting` is sent to the other end, whose admit() returns it.
void greet(Channel& channel, std::string_view secret, std::string_view greeting, Deadline deadline);

// The accepting end, in two steps, so that it can wait for many at once: challenge() sends a nonce and returns it;
// admit() checks the line that answered it, of at most kMaxGreeting bytes, and proves the secret in turn.
inline constexpr std::size_t kMaxGreeting = 4096;
std::string challenge(Channel& channel, Deadline deadline);
std::string admit(Channel& channel, std::string_view secret, std::string_view nonce, std::string_view line,
                  Deadline deadline);

}  // namespace ms::link
