// Reads FlatBuffers, of which every offset is checked: a graph comes from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

namespace flatbuffer {

/// A buffer that is none.
class Malformed : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

class Bytes {
  public:
    Bytes(const void* data, std::size_t size) : data_(static_cast<const std::uint8_t*>(data)), size_(data ? size : 0) {}

    /// The little-endian value at an offset; so are the machines that hipDNN runs on.
    template <class T> T read(std::size_t offset) const {
        if (offset > size_ || size_ - offset < sizeof(T)) throw Malformed("an offset leads out of the buffer");
        T value;
        std::memcpy(&value, data_ + offset, sizeof value);
        return value;
    }

    /// Where the offset that is stored at `at` leads.
    std::size_t follow(std::size_t at) const { return at + read<std::uint32_t>(at); }

  private:
    const std::uint8_t* data_;
    std::size_t size_;
};

/// A table. Fields are numbered as the schema has them, where a union counts as two.
class Table {
  public:
    static Table root(Bytes bytes) { return Table(bytes, bytes.follow(0)); }

    template <class T> std::optional<T> scalar(unsigned field) const {
        const auto at = place(field);
        return at ? std::optional<T>(bytes_.read<T>(*at)) : std::nullopt;
    }

    std::optional<Table> table(unsigned field) const {
        const auto at = place(field);
        return at ? std::optional<Table>(Table(bytes_, bytes_.follow(*at))) : std::nullopt;
    }

    /// The tables of a vector; none where it is absent. More than `limit` are an error.
    std::vector<Table> tables(unsigned field, std::size_t limit) const {
        std::vector<Table> found;
        each(field, limit, 4, [&](std::size_t at) { found.push_back(Table(bytes_, bytes_.follow(at))); });
        return found;
    }

    /// The numbers of a vector; none where it is absent. More than `limit` are an error.
    std::vector<std::int64_t> longs(unsigned field, std::size_t limit) const {
        std::vector<std::int64_t> found;
        each(field, limit, 8, [&](std::size_t at) { found.push_back(bytes_.read<std::int64_t>(at)); });
        return found;
    }

  private:
    Table(Bytes bytes, std::size_t at) : bytes_(bytes), at_(at) {}

    std::optional<std::size_t> place(unsigned field) const {
        // Behind a table's start is how far its list of fields lies before it.
        const auto back = bytes_.read<std::int32_t>(at_);
        const auto list = static_cast<std::size_t>(static_cast<std::int64_t>(at_) - back);
        const auto slot = 4 + 2 * static_cast<std::size_t>(field);
        if (slot + 2 > bytes_.read<std::uint16_t>(list)) return std::nullopt;
        const auto offset = bytes_.read<std::uint16_t>(list + slot);
        return offset == 0 ? std::nullopt : std::optional<std::size_t>(at_ + offset);
    }

    template <class Visit> void each(unsigned field, std::size_t limit, std::size_t width, Visit visit) const {
        const auto at = place(field);
        if (!at) return;
        const auto vector = bytes_.follow(*at);
        const auto count = bytes_.read<std::uint32_t>(vector);
        if (count > limit) throw Malformed("a vector is longer than any that is taken");
        for (std::size_t i = 0; i < count; i++) visit(vector + 4 + width * i);
    }

    Bytes bytes_;
    std::size_t at_;
};

} // namespace flatbuffer
