// See insn.h. SDM vol. 2, appendix A (opcode maps) and chapter 2 (prefixes, VEX, EVEX).
// One letter an opcode names the bytes behind it:
//   .  nothing          m  ModRM                M  ModRM, imm8        Z  ModRM, imm16/32
//   b  imm8             z  imm16/32             v  imm16/32/64        w  imm16
//   o  an address       e  imm16, imm8 (ENTER)  t  ModRM, and imm8 when reg < 2 (TEST in group 3)
//   T  the same with imm16/32                   r  rel32 with any prefixes
//   p  legacy prefix    R  REX                  x  escape 0F          V  VEX, EVEX          !  none in 64-bit mode
#include "insn.h"

#include <string.h>

// clang-format off
static const char one_byte[] =
    "mmmmbz!!mmmmbz!x" "mmmmbz!!mmmmbz!!" "mmmmbzp!mmmmbzp!" "mmmmbzp!mmmmbzp!"  // 00
    "RRRRRRRRRRRRRRRR" "................" "!!Vmppppz" "Z" "bM...." "bbbbbbbbbbbbbbbb"  // 40
    "MZ!Mmmmmmmmmmmmm" ".........." "!....." "oooo....bz......" "bbbbbbbbvvvvvvvv"  // 80
    "MMw.VVMZe.w..b!." "mmmm!!!.mmmmmmmm" "bbbbbbbbrr!b...." "p.pp..tT......mm";  // C0

static const char two_byte[] =
    "mmmm!.....!.!m.M" "mmmmmmmmmmmmmmmm" "mmmm!!!!mmmmmmmm" "........x!x!!!!!"  // 00
    "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "MMMMmmm.mmmmmmmm"  // 40
    "rrrrrrrrrrrrrrrr" "mmmmmmmmmmmmmmmm" "...mMm!!...mMmmm" "mmmmmmmmmmMmmmmm"  // 80
    "mmMmMMMm........" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm";  // C0
// clang-format on

_Static_assert(sizeof one_byte == 257 && sizeof two_byte == 257, "one letter an opcode");

static size_t modrm_length(const uint8_t *code, size_t size, _Bool *fits) {
    size_t length = 1;
    *fits = size >= 1;
    if (!*fits) return 0;
    uint8_t mod = code[0] >> 6, rm = code[0] & 7;
    if (mod == 3) return 1;
    if (rm == 4) {
        length = 2;
        *fits = size >= 2;
        if (!*fits) return 0;
        rm = code[1] & 7;  // SIB: base 5 with mod 0 has a disp32
    }
    if (mod == 1)
        length += 1;
    else if (mod == 2 || rm == 5)
        length += 4;
    return length;
}

static int32_t signed_at(const uint8_t *code, size_t size) {
    if (size == 1) return (int8_t)code[0];
    int32_t value;
    memcpy(&value, code, 4);
    return value;
}

_Bool insn_decode(struct insn *insn, const uint8_t *code, size_t size) {
    if (size > 15) size = 15;
    size_t at = 0;
    _Bool wide = 0, operand16 = 0, address32 = 0, rep = 0;

    memset(insn, 0, sizeof *insn);
    for (;; at++) {
        if (at >= size) return 0;
        char letter = one_byte[code[at]];
        if (letter == 'p') {
            operand16 |= code[at] == 0x66;
            address32 |= code[at] == 0x67;
            rep |= (code[at] & 0xfe) == 0xf2;
            wide = 0;  // REX counts only right before the opcode
        } else if (letter == 'R') {
            wide = code[at] & 8;
        } else {
            break;
        }
    }

    uint8_t opcode = code[at++];
    char letter = one_byte[opcode];
    int map = 0;
    if (letter == 'x') {
        map = 1;
        if (at >= size) return 0;
        opcode = code[at++];
        letter = two_byte[opcode];
        if (letter == 'x') {  // 0F 38, 0F 3A
            map = opcode == 0x38 ? 2 : 3;
            if (at >= size) return 0;
            opcode = code[at++];
            letter = map == 3 ? 'M' : 'm';
        }
    } else if (letter == 'V') {
        size_t payload = opcode == 0xc5 ? 1 : opcode == 0xc4 ? 2 : 3;
        if (at + payload + 1 > size) return 0;
        map = payload == 1 ? 1 : code[at] & (payload == 2 ? 0x1f : 7);
        at += payload;
        opcode = code[at++];
        letter = map == 3 ? 'M' : map == 1 ? two_byte[opcode] : 'm';
        insn->flow = FLOW_NEXT;
        map = 4;  // no branch among them
    }

    _Bool fits = 1;
    uint8_t modrm = at < size ? code[at] : 0;
    if (strchr("mMZtT", letter)) {
        at += modrm_length(code + at, size - at, &fits);
        if (!fits) return 0;
    }
    size_t immediate = 0;
    size_t word = operand16 ? 2 : 4;
    switch (letter) {
        case 'M':
        case 'b': immediate = 1; break;
        case 'Z':
        case 'z': immediate = word; break;
        case 'v': immediate = wide ? 8 : word; break;
        case 'w': immediate = 2; break;
        case 'e': immediate = 3; break;
        case 'o': immediate = address32 ? 4 : 8; break;
        case 't': immediate = (modrm >> 3 & 7) < 2 ? 1 : 0; break;
        case 'T': immediate = (modrm >> 3 & 7) < 2 ? (wide ? 4 : word) : 0; break;
        case 'r': immediate = 4; break;
        case '!': return 0;
    }
    if (wide && (letter == 'z' || letter == 'Z')) immediate = 4;
    if (at + immediate > size) return 0;
    const uint8_t *displacement = code + at;
    insn->length = at + immediate;

    if (map == 0) {
        uint8_t reg = modrm >> 3 & 7;
        if ((opcode & 0xf0) == 0x70 || (opcode & 0xfc) == 0xe0)
            insn->flow = FLOW_COND;
        else if (opcode == 0xe9 || opcode == 0xeb)
            insn->flow = FLOW_JUMP;
        else if (opcode == 0xe8)
            insn->flow = FLOW_CALL;
        else if (opcode == 0xff && (reg == 2 || reg == 4))
            insn->flow = reg == 2 ? FLOW_ICALL : FLOW_IJUMP;
        else if (opcode == 0xc2 || opcode == 0xc3)
            insn->flow = FLOW_RET;
        else if ((opcode == 0xff && (reg == 3 || reg == 5)) || (opcode >= 0xca && opcode <= 0xcf) || opcode == 0xf1)
            insn->flow = FLOW_FAR;
        else
            insn->rep = rep && ((opcode >= 0x6c && opcode <= 0x6f) || (opcode >= 0xa4 && opcode <= 0xa7) ||
                                (opcode >= 0xaa && opcode <= 0xaf));
    } else if (map == 1) {
        if ((opcode & 0xf0) == 0x80)
            insn->flow = FLOW_COND;
        else if (opcode == 0x05 || opcode == 0x07 || opcode == 0x34 || opcode == 0x35)
            insn->flow = FLOW_FAR;
    }
    if (insn->flow == FLOW_COND || insn->flow == FLOW_JUMP || insn->flow == FLOW_CALL)
        insn->offset = signed_at(displacement, immediate);
    return 1;
}
