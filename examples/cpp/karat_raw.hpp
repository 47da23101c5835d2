// Reads and writes karat's raw form: tensors.txt and one .bin file per tensor. Needs C++17 and nothing else.
//
//   karat::raw::Folder inputs("case/raw");                // looks at the table and at every file's size
//   const auto& x = inputs.at("input", "input/0");        // throws if there is none
//   std::vector<float> values = x.as<float>();            // throws if it is no float32
//
//   karat::raw::Writer outputs("outputs");
//   outputs.add("output", "expected", "float32", x.shape, values.data(), values.size() * sizeof(float));
//   outputs.close();                                      // writes the table; without it there is nothing
//
// What is read is held against its digest, and another one is an error; tables of format 1 have none that is checked
// here. The layout is documented in docs/bundles.md. Elements are in C order and little-endian, and so must be the
// machine that this runs on.

#ifndef KARAT_RAW_HPP
#define KARAT_RAW_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace karat::raw {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

namespace detail {

constexpr const char* first_line = "karat-raw 2";
constexpr const char* first_line_1 = "karat-raw 1";
constexpr const char* table_name = "tensors.txt";

inline std::uint64_t number(const std::string& digits, const std::string& where) {
    if (digits.empty() || digits.size() > 19 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
        throw Error(where + ": expected a number, found '" + digits + "'");
    return std::stoull(digits);
}

inline std::vector<std::uint64_t> shape(const std::string& text, const std::string& where) {
    std::vector<std::uint64_t> lengths;
    if (text == "-") return lengths;
    std::stringstream parts(text);
    for (std::string part; std::getline(parts, part, 'x');) lengths.push_back(number(part, where));
    if (lengths.empty() || text.back() == 'x')
        throw Error(where + ": expected a shape such as 2x3 or -, found '" + text + "'");
    return lengths;
}

inline std::uint64_t count(const std::vector<std::uint64_t>& shape, const std::string& where) {
    std::uint64_t elements = 1;
    for (std::uint64_t length : shape) {
        if (length != 0 && elements > std::numeric_limits<std::uint64_t>::max() / length)
            throw Error(where + ": expected a shape that fits into 64 bits, found a larger one");
        elements *= length;
    }
    return elements;
}

// Fixed-size dtypes and their size in bytes; 0 for the others, whose elements are left alone.
inline std::size_t item_size(const std::string& dtype) {
    struct Known {
        const char* name;
        std::size_t size;
    };
    static constexpr Known known[] = {
        {"bool", 1},    {"int4", 1},     {"uint4", 1},    {"int8", 1},      {"uint8", 1},
        {"int16", 2},   {"uint16", 2},   {"int32", 4},    {"uint32", 4},    {"int64", 8},
        {"uint64", 8},  {"float16", 2},  {"bfloat16", 2}, {"float32", 4},   {"float64", 8},
        {"complex64", 8}, {"complex128", 16}, {"float8_e4m3fn", 1}, {"float8_e4m3fnuz", 1},
        {"float8_e5m2", 1}, {"float8_e5m2fnuz", 1}, {"float8_e8m0fnu", 1},
    };
    for (const Known& one : known)
        if (dtype == one.name) return one.size;
    return 0;
}

template <class T>
const char* dtype_of() {
    if constexpr (std::is_same_v<T, float>) return "float32";
    else if constexpr (std::is_same_v<T, double>) return "float64";
    else if constexpr (std::is_same_v<T, bool>) return "bool";
    else if constexpr (std::is_same_v<T, std::int8_t>) return "int8";
    else if constexpr (std::is_same_v<T, std::uint8_t>) return "uint8";
    else if constexpr (std::is_same_v<T, std::int16_t>) return "int16";
    else if constexpr (std::is_same_v<T, std::uint16_t>) return "uint16";
    else if constexpr (std::is_same_v<T, std::int32_t>) return "int32";
    else if constexpr (std::is_same_v<T, std::uint32_t>) return "uint32";
    else if constexpr (std::is_same_v<T, std::int64_t>) return "int64";
    else if constexpr (std::is_same_v<T, std::uint64_t>) return "uint64";
    else static_assert(sizeof(T) == 0, "no dtype for this type; read bytes() instead");
}

inline void check_name(const std::string& file, const std::string& where) {
    if (file.empty() || file.front() == '.' || file.find_first_of("/\\") != std::string::npos ||
        file.find('\0') != std::string::npos)
        throw Error(where + ": expected the name of a file beside the table, found '" + file + "'");
}

// Fields are apart by tabs and rows by line ends, so neither may be in one.
inline void check_field(const std::string& field) {
    if (field.find_first_of("\t\r\n") != std::string::npos)
        throw Error("expected a name without tabs and line ends, found '" + field + "'");
}

// BLAKE3, plain, 32 bytes (github.com/BLAKE3-team/BLAKE3-specs): chunks of 1024 bytes are the leaves of a binary tree.
class Blake3 {
public:
    using Words = std::array<std::uint32_t, 8>;

    void update(const unsigned char* data, std::size_t size) {
        while (size > 0) {
            // The last block of a chunk, and the last chunk, wait until it is known whether more follows.
            if (used_ == 64) {
                if (blocks_ == 15) end_chunk();
                else {
                    chunk_ = compress(chunk_, block_, chunks_, 64, blocks_ == 0 ? start : 0);
                    ++blocks_;
                }
                used_ = 0;
            }
            const std::size_t part = std::min(size, std::size_t{64} - used_);
            std::memcpy(block_.data() + used_, data, part);
            used_ += part;
            data += part;
            size -= part;
        }
    }

    std::array<unsigned char, 32> digest() const {
        std::array<unsigned char, 64> block = block_;
        std::fill(block.begin() + static_cast<std::ptrdiff_t>(used_), block.end(), static_cast<unsigned char>(0));
        std::uint32_t flags = end | (blocks_ == 0 ? start : 0), size = static_cast<std::uint32_t>(used_);
        Words from = chunk_;
        std::uint64_t counter = chunks_;
        for (std::size_t left = stack_.size(); left > 0; --left) {
            block = joined(stack_[left - 1], compress(from, block, counter, size, flags));
            from = initial;
            counter = 0, size = 64, flags = parent;
        }
        const Words found = compress(from, block, counter, size, flags | root);
        std::array<unsigned char, 32> bytes{};
        for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<unsigned char>(found[i / 4] >> (8 * (i % 4)));
        return bytes;
    }

private:
    static constexpr Words initial{0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                   0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
    static constexpr std::uint32_t start = 1, end = 2, parent = 4, root = 8;

    static std::uint32_t turned(std::uint32_t word, unsigned by) { return (word >> by) | (word << (32 - by)); }

    static Words compress(const Words& from, const std::array<unsigned char, 64>& block, std::uint64_t counter,
                          std::uint32_t size, std::uint32_t flags) {
        static constexpr std::size_t order[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
        static constexpr std::size_t mixed[8][4] = {{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15},
                                                    {0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13}, {3, 4, 9, 14}};
        std::array<std::uint32_t, 16> words, next, s;
        for (std::size_t i = 0; i < 16; ++i)
            words[i] = static_cast<std::uint32_t>(block[4 * i]) | static_cast<std::uint32_t>(block[4 * i + 1]) << 8 |
                       static_cast<std::uint32_t>(block[4 * i + 2]) << 16 |
                       static_cast<std::uint32_t>(block[4 * i + 3]) << 24;
        std::copy(from.begin(), from.end(), s.begin());
        std::copy(initial.begin(), initial.begin() + 4, s.begin() + 8);
        s[12] = static_cast<std::uint32_t>(counter);
        s[13] = static_cast<std::uint32_t>(counter >> 32);
        s[14] = size;
        s[15] = flags;
        for (int round = 0; round < 7; ++round) {
            for (std::size_t i = 0; i < 8; ++i) {
                std::uint32_t &a = s[mixed[i][0]], &b = s[mixed[i][1]], &c = s[mixed[i][2]], &d = s[mixed[i][3]];
                a += b + words[2 * i];
                d = turned(d ^ a, 16);
                c += d;
                b = turned(b ^ c, 12);
                a += b + words[2 * i + 1];
                d = turned(d ^ a, 8);
                c += d;
                b = turned(b ^ c, 7);
            }
            for (std::size_t i = 0; i < 16; ++i) next[i] = words[order[i]];
            words = next;
        }
        Words found;
        for (std::size_t i = 0; i < 8; ++i) found[i] = s[i] ^ s[i + 8];
        return found;
    }

    static std::array<unsigned char, 64> joined(const Words& left, const Words& right) {
        std::array<unsigned char, 64> block;
        for (std::size_t i = 0; i < 64; ++i) {
            const std::uint32_t word = i < 32 ? left[i / 4] : right[i / 4 - 8];
            block[i] = static_cast<unsigned char>(word >> (8 * (i % 4)));
        }
        return block;
    }

    void end_chunk() {
        Words found = compress(chunk_, block_, chunks_, 64, end);
        ++chunks_;
        // As many subtrees are complete as the number of chunks ends with zeros.
        for (std::uint64_t count = chunks_; (count & 1) == 0; count >>= 1) {
            found = compress(initial, joined(stack_.back(), found), 0, 64, parent);
            stack_.pop_back();
        }
        stack_.push_back(found);
        chunk_ = initial;
        blocks_ = 0;
    }

    std::vector<Words> stack_;
    Words chunk_ = initial;
    std::array<unsigned char, 64> block_{};
    std::size_t used_ = 0;
    unsigned blocks_ = 0;
    std::uint64_t chunks_ = 0;
};

// The digest of a tensor: over dtype, shape and the hashes of its elements in pieces of 16 MiB.
inline std::string digest(const std::string& dtype, const std::string& shape, const void* data, std::uint64_t nbytes) {
    constexpr std::uint64_t piece = std::uint64_t{16} << 20;
    const std::string head = std::string("karat.tensor/2") + '\0' + dtype + '\0' + shape + '\0';
    Blake3 whole;
    whole.update(reinterpret_cast<const unsigned char*>(head.data()), head.size());
    std::uint64_t at = 0;
    do {
        const std::uint64_t size = std::min(piece, nbytes - at);
        Blake3 one;
        if (size > 0) one.update(static_cast<const unsigned char*>(data) + at, static_cast<std::size_t>(size));
        whole.update(one.digest().data(), 32);
        at += size;
    } while (at < nbytes);
    std::string text = "blake3:";
    for (unsigned char byte : whole.digest()) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

inline std::string joined(const std::vector<std::uint64_t>& shape) {
    std::string lengths;
    for (std::uint64_t length : shape) lengths += (lengths.empty() ? "" : "x") + std::to_string(length);
    return lengths;
}

}  // namespace detail

// One tensor of a folder; its elements are read when asked for.
struct Tensor {
    std::string role;   // input, expected or output
    std::string name;   // input/0, expected/logits
    std::string dtype;  // float32, bfloat16, int64
    std::vector<std::uint64_t> shape;
    std::vector<std::uint64_t> strides;  // in elements, of what did not lie in C order in memory; else empty
    std::uint64_t nbytes = 0;
    std::string digest;  // blake3:…; may be empty in outputs, and is the file's sha256 in format 1
    std::filesystem::path path;

    std::uint64_t elements() const { return detail::count(shape, name); }

    std::vector<unsigned char> bytes() const {
        std::vector<unsigned char> data(static_cast<std::size_t>(nbytes));
        read(data.data());
        return data;
    }

    // The elements where `strides` says, for a program that wants channels last as channels last; bytes() has C order.
    std::vector<unsigned char> in_memory_order() const {
        std::vector<unsigned char> data = bytes();
        if (strides.empty()) return data;
        std::vector<unsigned char> laid(data.size());
        const std::size_t item = static_cast<std::size_t>(nbytes / elements());
        std::vector<std::uint64_t> index(shape.size());
        std::uint64_t to = 0;
        for (std::size_t from = 0; from < data.size(); from += item) {
            std::memcpy(laid.data() + static_cast<std::size_t>(to) * item, data.data() + from, item);
            for (std::size_t axis = shape.size(); axis-- > 0;) {
                to += strides[axis];
                if (++index[axis] < shape[axis]) break;
                to -= strides[axis] * shape[axis];
                index[axis] = 0;
            }
        }
        return laid;
    }

    template <class T>
    std::vector<T> as() const {
        static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no bytes; read uint8 with bytes()");
        if (dtype != detail::dtype_of<T>())
            throw Error(name + ": expected " + detail::dtype_of<T>() + ", found " + dtype);
        std::vector<T> data(static_cast<std::size_t>(elements()));
        read(data.data());
        return data;
    }

private:
    void read(void* target) const {
        std::ifstream file(path, std::ios::binary);
        file.read(static_cast<char*>(target), static_cast<std::streamsize>(nbytes));
        if (!file || static_cast<std::uint64_t>(file.gcount()) != nbytes)
            throw Error(path.string() + ": expected " + std::to_string(nbytes) + " bytes, could not read them");
        if (digest.compare(0, 7, "blake3:") != 0) return;
        const std::string found = detail::digest(dtype, detail::joined(shape), target, nbytes);
        if (found != digest)
            throw Error(path.string() + ": expected the digest " + digest + ", found " + found);
    }
};

// The tensors of a folder; every line of its table and every file's size has been looked at.
class Folder {
public:
    explicit Folder(const std::filesystem::path& folder) : folder_(folder) {
        const std::filesystem::path table = folder / detail::table_name;
        std::ifstream lines(table, std::ios::binary);
        if (!lines) throw Error(table.string() + ": expected the table of the tensors, found none");
        std::string line;
        if (!next(lines, line) || (line != detail::first_line && line != detail::first_line_1))
            throw Error(table.string() + ": expected the first line '" + detail::first_line + "', found '" +
                        line.substr(0, 80) + "'");
        for (std::size_t number = 2; next(lines, line); ++number)
            if (!line.empty()) take(line, table.string() + ", line " + std::to_string(number));
    }

    const std::vector<Tensor>& tensors() const { return tensors_; }

    std::vector<Tensor> with_role(const std::string& role) const {
        std::vector<Tensor> found;
        for (const Tensor& tensor : tensors_)
            if (tensor.role == role) found.push_back(tensor);
        return found;
    }

    const Tensor& at(const std::string& role, const std::string& name) const {
        for (const Tensor& tensor : tensors_)
            if (tensor.role == role && tensor.name == name) return tensor;
        throw Error(folder_.string() + ": expected a tensor '" + name + "' with the role " + role +
                    ", found none among " + std::to_string(tensors_.size()));
    }

private:
    static bool next(std::ifstream& lines, std::string& line) {
        if (!std::getline(lines, line)) return false;
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return true;
    }

    void take(const std::string& line, const std::string& where) {
        std::vector<std::string> fields(1);
        for (char c : line) {
            if (c == '\t') fields.emplace_back();
            else fields.back().push_back(c);
        }
        if (fields.size() != 7 && fields.size() != 8)
            throw Error(where + ": expected 7 or 8 fields apart by tabs, found " + std::to_string(fields.size()));
        Tensor tensor;
        tensor.role = fields[0];
        tensor.name = fields[1];
        tensor.dtype = fields[2];
        tensor.shape = detail::shape(fields[3], where);
        tensor.nbytes = detail::number(fields[4], where);
        tensor.digest = fields[5];
        detail::check_name(fields[6], where);
        tensor.path = folder_ / fields[6];
        check_size(tensor, where);
        if (fields.size() == 8) {
            tensor.strides = detail::shape(fields[7], where);
            check_layout(tensor, where);
        }
        if (!seen_.insert(tensor.role + '\t' + tensor.name).second)
            throw Error(where + ": expected each tensor once, found '" + tensor.name + "' twice");
        tensors_.push_back(std::move(tensor));
    }

    // Without gaps and overlaps, no element lies beyond the end.
    static void check_layout(const Tensor& tensor, const std::string& where) {
        std::vector<std::pair<std::uint64_t, std::uint64_t>> axes;
        for (std::size_t axis = 0; axis < std::min(tensor.shape.size(), tensor.strides.size()); ++axis)
            axes.emplace_back(tensor.strides[axis], tensor.shape[axis]);
        std::sort(axes.begin(), axes.end());
        std::uint64_t apart = 1;
        bool sound = tensor.shape.size() == tensor.strides.size() && tensor.elements() != 0;
        for (const auto& [stride, length] : axes) {
            sound = sound && (length > 1 ? stride == apart : stride <= tensor.elements());
            apart *= length;
        }
        if (!sound) throw Error(where + ": expected the strides of a tensor without gaps, found others");
    }

    static void check_size(const Tensor& tensor, const std::string& where) {
        const std::size_t item = detail::item_size(tensor.dtype);
        const std::uint64_t elements = detail::count(tensor.shape, where);
        if (item != 0 && (elements > std::numeric_limits<std::uint64_t>::max() / item ||
                          elements * item != tensor.nbytes))
            throw Error(where + ": expected " + std::to_string(elements) + " elements of " +
                        std::to_string(item) + " bytes, found " + std::to_string(tensor.nbytes) + " bytes");
        std::error_code failed;
        const auto found = std::filesystem::file_size(tensor.path, failed);
        if (failed || found != tensor.nbytes)
            throw Error(tensor.path.string() + ": expected a file of " + std::to_string(tensor.nbytes) +
                        " bytes, found " + (failed ? failed.message() : std::to_string(found)));
    }

    std::filesystem::path folder_;
    std::vector<Tensor> tensors_;
    std::set<std::string> seen_;
};

// Writes a folder that Folder and karat can read.
class Writer {
public:
    explicit Writer(std::filesystem::path folder) : folder_(std::move(folder)) {
        std::filesystem::create_directories(folder_);
    }

    void add(const std::string& role, const std::string& name, const std::string& dtype,
             const std::vector<std::uint64_t>& shape, const void* data, std::uint64_t nbytes) {
        for (const std::string* field : {&role, &name, &dtype}) detail::check_field(*field);
        const std::size_t item = detail::item_size(dtype);
        if (item != 0 && (nbytes % item != 0 || detail::count(shape, name) != nbytes / item))
            throw Error(name + ": expected " + std::to_string(detail::count(shape, name)) + " elements of " +
                        std::to_string(item) + " bytes, found " + std::to_string(nbytes) + " bytes");
        const std::string file = role + "." + std::to_string(count_++) + ".bin";
        detail::check_name(file, name);
        std::ofstream out(folder_ / file, std::ios::binary | std::ios::trunc);
        out.write(static_cast<const char*>(data), static_cast<std::streamsize>(nbytes));
        out.close();
        if (!out) throw Error((folder_ / file).string() + ": expected to write " + std::to_string(nbytes) + " bytes");
        const std::string lengths = detail::joined(shape);
        table_ << role << '\t' << name << '\t' << dtype << '\t' << (lengths.empty() ? "-" : lengths) << '\t'
               << nbytes << '\t' << detail::digest(dtype, lengths, data, nbytes) << '\t' << file << '\n';
    }

    void close() {
        std::ofstream out(folder_ / detail::table_name, std::ios::binary | std::ios::trunc);
        out << detail::first_line << '\n' << table_.str();
        out.close();
        if (!out) throw Error((folder_ / detail::table_name).string() + ": expected to write the table");
    }

private:
    std::filesystem::path folder_;
    std::ostringstream table_;
    std::size_t count_ = 0;
};

}  // namespace karat::raw

#endif  // KARAT_RAW_HPP
