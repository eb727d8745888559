// SPDX-License-Identifier: Apache-2.0

package node

import "deviceshare/sharing"

// Licence is what the driver says of the licence of a vGPU.
type Licence struct {
	Valid bool
	// Ends is when it ends, in seconds since 1970; 0 if never, or if the driver does not say.
	Ends int64
}

// LicenceRead: the driver said how it is with the licence of a device. Now is when, in seconds
// since 1970.
type LicenceRead struct {
	Device  sharing.DeviceID
	Licence Licence
	Now     int64
}

func (e LicenceRead) applyTo(s *State) {
	if d := s.findDevice(e.Device); d != nil && d.facts.Virtual {
		d.licence = d.licence.afterRead(e.Licence, e.Now)
	}
}

// licence is what is known of a device's licence. The zero value is nothing.
type licence struct {
	known bool
	said  Licence
	// lasts is for how many seconds it had still to last when it was first seen with its end.
	lasts int64
	// ending says that it ends soon and was not renewed when it should have been.
	ending bool
}

// licenceNotice is how many seconds before its end people are told of a licence that is not
// renewed.
const licenceNotice = 7 * 24 * 3600

// afterRead decides whether a licence ends too soon. Servers lend licences for one to seven days,
// and the driver renews them long before the end. So one that is lent is in trouble when less than
// a quarter of its time is left, and one that was bought for longer in its last week.
func (l licence) afterRead(said Licence, now int64) licence {
	left := said.Ends - now
	next := licence{known: true, said: said, lasts: left}
	if l.known && l.said == said {
		next.lasts = l.lasts
	}
	next.ending = said.Valid && said.Ends != 0 && left < min(licenceNotice, next.lasts/4)
	return next
}

// asPublished is what schedulers are told.
func (l licence) asPublished() sharing.Licence {
	switch {
	case !l.known:
		return sharing.LicenceUnknown
	case l.said.Valid:
		return sharing.LicenceValid
	}
	return sharing.LicenceMissing
}

// findTrouble says what is wrong with the licence, if anything is.
func (l licence) findTrouble() (why string, is bool) {
	switch {
	case !l.known:
		return "", false
	case !l.said.Valid:
		return "it has no licence", true
	case l.ending:
		return "its licence ends soon and was not renewed", true
	}
	return "", false
}

// licenceNotices tell of an offered vGPU without a licence, once for each cause.
func licenceNotices(n Notice, before *State, old *device, after *State, d *device) []Notice {
	earlier, was := old.licence.findTrouble()
	why, is := d.licence.findTrouble()
	isKnown := was && before.isOffered(old)
	switch {
	case !after.isOffered(d):
		return nil
	case is && !(isKnown && earlier == why):
		n.Kind, n.Detail, n.Ends = DeviceUnlicensed, why, d.licence.said.Ends
	case !is && isKnown:
		n.Kind = DeviceLicensed
	default:
		return nil
	}
	return []Notice{n}
}
