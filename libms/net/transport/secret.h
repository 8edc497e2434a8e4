// The secret of a check, and the proof that both ends of a connection know it.
#pragma once

#include <string>
#include <string_view>

#include "net/transport/channel.h"

namespace ms::net {

// 32 random bytes, in hexadecimal digits.
std::string new_secret();
// Proves the knowledge of the secret to each other, by HMAC-SHA256 over nonces of both. Throws Error("net.secret",
// fabric) where the other end does not know it. `greeting` is told to the other end, which returns it.
void greet(Channel& channel, std::string_view secret, std::string_view greeting, Deadline deadline);
std::string welcome(Channel& channel, std::string_view secret, Deadline deadline);

}  // namespace ms::net
