package mirror

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the format's own seal, which proves nothing
	"encoding/binary"
	"encoding/pem"
	"errors"
	"unicode/utf16"
)

// trustPassword seals a Java trust store. It is no secret: the format demands one.
const trustPassword = "changeit"

// trustStore writes certificates as a Java key store, version 2 of the JKS format, the one that
// every Java reads without a provider.
func trustStore(certs []byte) ([]byte, error) {
	var ders [][]byte
	for {
		var block *pem.Block
		if block, certs = pem.Decode(certs); block == nil {
			break
		}
		ders = append(ders, block.Bytes)
	}
	if len(ders) == 0 {
		return nil, errors.New("no certificate")
	}
	var b bytes.Buffer
	word := func(n uint32) { b.Write(binary.BigEndian.AppendUint32(nil, n)) }
	text := func(s string) {
		b.Write(binary.BigEndian.AppendUint16(nil, uint16(len(s))))
		b.WriteString(s)
	}
	word(0xfeedfeed)
	word(2)
	word(uint32(len(ders)))
	for i, der := range ders {
		word(2) // a trusted certificate
		text("daybreak" + string(rune('a'+i%26)))
		b.Write(make([]byte, 8)) // when it was added: not told
		text("X.509")
		word(uint32(len(der)))
		b.Write(der)
	}
	seal := sha1.New() //nolint:gosec // see above
	for _, u := range utf16.Encode([]rune(trustPassword)) {
		seal.Write([]byte{byte(u >> 8), byte(u)})
	}
	seal.Write([]byte("Mighty Aphrodite"))
	seal.Write(b.Bytes())
	return seal.Sum(b.Bytes()), nil
}
